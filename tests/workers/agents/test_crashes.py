"""Whatever an agent did when its process died, another one comes to the same end, and pays one model call at most."""

import asyncio
import contextlib
import json
from pathlib import Path

import msgspec
import pytest
from gymq.workers.agents.answering_agent.worker import AnsweringAgent
from gymq.workers.agents.aviary_agent.worker import AviaryAgent
from gymq.workers.agents.gymnasium_agent.example_environment import Guess
from gymq.workers.agents.gymnasium_agent.worker import GymnasiumAgent
from gymq.workers.agents.proof_refinement_agent.worker import ProofRefinementAgent
from gymq.workers.agents.simple_agent.worker import SimpleAgent
from gymq.workers.agents.tool_simulation_agent.worker import ToolSimulationAgent
from gymq.workers.resources.aviary.worker import Environments
from gymq.workers.resources.example_session_state_mgmt.worker import SessionCounter
from gymq.workers.resources.xlam_fc.worker import FunctionCalling

import gymq
from gymq import responses
from gymq.config import load
from gymq.execution.attempts import Attempts
from gymq.execution.fencing import Fenced
from gymq.execution.journal import Journal
from gymq.execution.loading.registry import find_class
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass, Generated, Task, VerifiedRollout
from gymq.testing import function_call, prompt, reply
from gymq.testing.agent_harness import AgentHarness

from .crashes import FOR_EVER, Died, Mortal, task_of, uninterrupted, with_a_crash

AGENTS = Path(__file__).parents[3] / "workers" / "agents"


class Strict(gymq.Resources[gymq.Row]):
    """Accepts the third attempt at a proof."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        right = request.reply_text == "proof 3"
        return gymq.Verdict(float(right), needs_correction=not right, correction_prompt=f"not {request.reply_text}")


class Thrice(gymq.AskingEnvironment[gymq.Row]):
    """Asks three times in one conversation."""

    async def play(self, row: gymq.Row, policy: gymq.Policy) -> float:
        asked, said = [], ""
        for number in range(3):
            asked.append({"role": "user", "content": f"Say {number}."})
            reply_ = await policy.ask({"input": asked})
            asked += reply_["output"]
            said += responses.output_text(reply_)
        return float(said == "012")


class Apples(Environments):
    def __init__(self) -> None:
        super().__init__({"env": "gsm8k", "problems": [{"question": "3 * 6?", "answer": 18}]})


def counts(params):
    turn = sum(item.get("type") == "function_call" for item in params["input"])
    if turn < 3:
        return with_tokens(reply(function_call("increment_counter", {"count": 1}, f"c{turn}")), turn)
    return reply("The counter is at 6.")


def calls(params):
    return with_tokens(reply(function_call("area", {"width": 2}, "c")), 0)


def proves(params):
    asked = params["input"][-1]["content"]
    return reply("proof 1" if asked == "Prove it." else f"proof {int(asked[-1]) + 1}")


def computes(params):
    seen = [item["output"] for item in params["input"] if item.get("type") == "function_call_output"]
    tool, arguments = ("submit_answer", {"answer": seen[-1]}) if seen else ("calculator", {"expr": "3 * 6"})
    return with_tokens(reply(function_call(tool, arguments, f"c{len(seen)}")), len(seen))


def guesses(params):
    turn = sum(item["role"] == "assistant" for item in params["input"])
    return with_tokens(reply(["50", "25", "42"][turn]), turn)


def repeats(params):
    turn = sum(item.get("role") == "assistant" for item in params["input"])
    return with_tokens(reply(str(turn)), turn)


def with_tokens(response, turn):
    tokens = {"prompt_token_ids": [1, turn], "generation_token_ids": [turn, 3], "generation_log_probs": [-0.5, -0.25]}
    response["output"][-1] |= tokens
    return response


COUNTER = {"initial_count": 3, "expected_count": 6, **prompt("Add 3 to the counter.")}
CALL = {"expected_answers": [{"name": "area", "arguments": {"width": 2}}], **prompt("Area?")}
CASES = {
    "simple_agent": (SimpleAgent, SessionCounter, counts, {}, COUNTER),
    "answering_agent": (AnsweringAgent, Thrice, repeats, {}, {"responses_create_params": {"input": []}}),
    "tool_simulation_agent": (ToolSimulationAgent, FunctionCalling, calls, {}, CALL),
    "proof_refinement_agent": (ProofRefinementAgent, Strict, proves, {"max_correction_turns": 5}, prompt("Prove it.")),
    "gymnasium_agent": (GymnasiumAgent, Guess, guesses, {}, {"number": 42, "highest": 100, **prompt("Guess.")}),
    "aviary_agent": (AviaryAgent, Apples, computes, {}, {"task_idx": 0, "responses_create_params": {"input": []}}),
}


@pytest.mark.parametrize("hears_last", [True, False], ids=["after-the-reply", "before-the-reply"])
@pytest.mark.parametrize("name", CASES)
async def test_a_rollout_continues_after_a_crash_at_any_effect(bus, run, name, hears_last):
    if name == "aviary_agent":
        pytest.importorskip("aviary.envs.gsm8k", reason='needs pip install "gymq[aviary]"')
    agent, resources, model, options, row = CASES[name]
    async with AgentHarness(agent, resources, model, options) as harness:
        expected, num_effects = await uninterrupted(harness, row)
        assert expected.verdict.reward == 1.0
        for at in range(1, num_effects + 1):  # the last one: before its outcome is stored
            done = await with_a_crash(bus, run, harness, row, at, hears_last=hears_last)
            assert (done.verdict.reward, done.response) == (1.0, expected.response), at
            paid_again = done.num_model_calls - expected.num_model_calls
            assert paid_again in ((0,) if hears_last else (0, 1)), at


async def test_a_rollout_whose_task_was_removed_and_submitted_again_resumes(bus, run):
    """As a collection with another configuration removes it."""
    async with AgentHarness(SimpleAgent, SessionCounter, counts, {}) as harness:
        expected, num_effects = await uninterrupted(harness, COUNTER)
        num_model_calls = 0
        for dies_at, is_resumed in ((num_effects - 2, False), (FOR_EVER, True)):
            caller = Mortal(harness, dies_at, hears_last=True)
            task = task_of(run, COUNTER)
            task.resumed = is_resumed
            with contextlib.suppress(Died):
                outcome, _ = await Attempts(bus, caller, harness.agent, worker="worker").outcome(task, 1)
            num_model_calls += caller.num_model_calls
        assert isinstance(outcome, VerifiedRollout)
        assert (outcome.reward, num_model_calls) == (1.0, expected.num_model_calls)


@pytest.mark.parametrize(("journals", "frozen_at", "second_at"), [(True, 4, 1), (True, 1, 1), (False, 4, 1)])
async def test_a_rollout_that_another_process_took_over_neither_fails_nor_closes_its_session(
    bus, run, monkeypatch, journals, frozen_at, second_at
):
    """As of an agent that is frozen until a time limit of its rollout has passed."""
    async with AgentHarness(SimpleAgent, SessionCounter, counts, {}) as harness:
        monkeypatch.setattr(harness.agent, "journals", lambda _: journals)
        task = task_of(run, COUNTER)
        frozen, second = Slow(harness, frozen_at), Slow(harness, second_at)
        first = asyncio.create_task(Attempts(bus, frozen, harness.agent, worker="frozen").outcome(task, 1))
        await frozen.reached.wait()
        continued = asyncio.create_task(Attempts(bus, second, harness.agent, worker="second").outcome(task, 2))
        await second.reached.wait()
        frozen.ended_by = RolloutError(FailureClass.DEADLINE_EXCEEDED, "no reply before its deadline")
        frozen.may_continue.set()
        with pytest.raises(Fenced):
            await first
        second.may_continue.set()
        outcome, _ = await continued
    assert isinstance(outcome, VerifiedRollout)
    assert (outcome.reward, outcome.attempt) == (1.0, 0)


class Slow(Mortal):
    """Waits before one of its effects, which may then fail."""

    def __init__(self, harness, waits_at):
        super().__init__(harness, FOR_EVER, hears_last=True)
        self.reached, self.may_continue, self.ended_by = asyncio.Event(), asyncio.Event(), None
        self._waits_at = waits_at

    async def call(self, subject, request):
        if self.num_effects == self._waits_at and not self.may_continue.is_set():
            self.reached.set()
            await self.may_continue.wait()
            if self.ended_by is not None:
                raise self.ended_by
        return await super().call(subject, request)


async def test_a_retry_keeps_its_journal_when_the_failed_rollouts_is_dropped(bus, run):
    paid = []

    async def ask():
        paid.append(1)
        return Generated(response=reply("done"))

    task = Task(run=run, task_index=0, rollout_index=0, agent="agent", row=b"{}", timeout_s=60.0)
    failed = Journal(bus, task, "failed")
    await failed.effect("model", False, ask)
    retry, resumed = (Journal(bus, msgspec.structs.replace(task, replaces=1), name) for name in ("retry", "resumed"))
    await retry.take_over()
    await retry.effect("model", False, ask)
    await failed.drop()  # its process has stored the failure, and was slow to go on
    await bus.flush()
    await retry.effect("another", False, ask)
    await resumed.take_over()
    await resumed.effect("model", False, ask)
    assert len(paid) == 3


@pytest.mark.parametrize("name", [path.parent.name for path in sorted(AGENTS.glob("*/worker.py"))])
def test_an_agents_folder_has_a_configuration_that_loads_and_rows_that_name_it(name):
    if name == "simple_agent":
        pytest.skip("its rows and configurations are those of the environments")
    model = AGENTS.parent / "models" / "simulated_model" / "config.yaml"
    config = load([model, AGENTS / name / "config.yaml"], env_yaml=None)
    agents = {instance.name: instance for instance in config.instances if instance.implementation == name}
    for instance in agents.values():
        if instance.kind == "agents":
            find_class("agents", name)(instance.options, name=instance.name)
    rows = (AGENTS / name / "data" / "example.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 5
    assert {json.loads(row)["agent_ref"]["name"] for row in rows} <= agents.keys()
