"""An exception of an author's code says where it was raised."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gymq
from gymq.authoring import CurrentCall, current_call
from gymq.bus import Bus
from gymq.execution.attempts import Attempts
from gymq.execution.model_runner import ModelRunner
from gymq.failures import MAX_FRAMES, RolloutError, describe_author_error
from gymq.model import ModelRequest
from gymq.protocol.messages import Failure, FailureClass, Generate, Task
from gymq.testing import Harness, reply
from gymq.testing.agent_harness import AgentHarness


class Clumsy(gymq.Resources[gymq.Row]):
    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return self.look(request)

    def look(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(request.row.answr)  # type: ignore[attr-defined]


async def test_a_failed_verification_names_the_file_and_the_line():
    async with Harness(Clumsy) as env:
        with pytest.raises(RolloutError) as failed:
            await env.verify({"responses_create_params": {"input": "?"}}, reply("A"))
    first, *frames = failed.value.message.splitlines()
    assert first.endswith("AttributeError: 'Row' object has no attribute 'answr'")
    assert [frame.split(" in ")[1].partition(":")[0] for frame in frames if __file__ in frame] == ["verify", "look"]
    assert "request.row.answr" in frames[-2] + frames[-1]


class Stumbles(gymq.Agent):
    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.branch(rollout))

    async def branch(self, rollout: gymq.Rollout) -> None:
        rollout.params["no such parameter"]


class Broken(gymq.Model):
    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        return {"output": request.no_such_member}  # type: ignore[attr-defined]


def frames_here(message: str) -> list[str]:
    """The functions of this file in a message."""
    return [line.split(" in ")[1].partition(":")[0] for line in message.splitlines() if __file__ in line]


async def test_a_failed_agent_names_the_file_and_the_line_also_in_a_task_group(bus: Bus, run: str) -> None:
    references = {
        "model_server": {"type": "responses_api_models", "name": "model"},
        "resources_server": {"type": "resources_servers", "name": "resources"},
    }
    attempts = Attempts(bus, AgentHarness(Stumbles, Clumsy, reply), Stumbles(references), worker="w")
    row = msgspec.json.encode({"responses_create_params": {"input": "?"}})
    outcome, _ = await attempts.outcome(
        Task(run=run, task_index=0, rollout_index=0, agent="a", row=row, timeout_s=60.0), 1
    )
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.AGENT_FAILED
    assert outcome.message.startswith("KeyError: 'no such parameter'\n")
    assert frames_here(outcome.message) == ["branch"]
    assert 'rollout.params["no such parameter"]' in outcome.message


async def test_a_failed_model_names_the_file_and_the_line() -> None:
    runner = ModelRunner(Broken(name="broken"))
    current_call.set(CurrentCall("r/0/0", asyncio.get_running_loop().time() + 60.0))
    with pytest.raises(RolloutError) as failed:
        await runner.answer("", Generate(rollout="r/0/0", timeout_s=60.0, params={"input": []}, session="s"))
    assert failed.value.failure_class is FailureClass.MODEL_FAILED
    assert failed.value.message.startswith("broken: AttributeError: ")
    assert frames_here(failed.value.message) == ["respond"]


def test_an_error_that_recurses_is_shown_by_its_last_frames():
    def deeper(left: int) -> None:
        if not left:
            raise ValueError("too deep")
        deeper(left - 1)

    with pytest.raises(ValueError, match="too deep") as failed:
        deeper(100)
    lines = describe_author_error(failed.value).splitlines()
    assert len(lines) == 1 + MAX_FRAMES
    assert Path(__file__).name in lines[-1]


def test_frames_of_libraries_are_left_out():
    with pytest.raises(ValueError, match="Expecting value") as failed:
        json.loads("nonsense")
    (_, frame) = describe_author_error(failed.value).splitlines()
    assert Path(__file__).name in frame
    assert 'json.loads("nonsense")' in frame
