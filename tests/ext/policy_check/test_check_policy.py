"""`gymq check-policy` finds engines whose tokens and log probs are not those that were sampled."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.mock_server import MockServer
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq
from gymq.cluster.launch import Cluster
from gymq.ext.policy_check.battery import ROWS
from gymq.ext.policy_check.findings import Finding, check_policy
from gymq.ext.policy_check.source import LogProbSource, Unknown
from gymq.ext.policy_check.vllm_prompts import PromptLogProbs
from gymq.protocol.instances import Instance
from gymq.protocol.messages import PromptRead
from gymq.protocol.packing import note_sampling
from tests.cli.conftest import Command
from tests.workers.models.scripted_engine import ScriptedEngine

FORM = {"ids of prompts", "ends of replies", "spans and masks", "turns continue"}
TOLERANCE = 1e-4


def options(url: str) -> dict[str, Any]:
    return {
        "base_url": url,
        "api_key": "none",
        "model": "served",
        "return_token_id_information": True,
        "request_prompt_and_generation_token_ids": True,
        "uses_reasoning_parser": False,
    }


async def check(engine: ScriptedEngine, source: LogProbSource | None = None) -> dict[str, Finding]:
    """The findings about an engine behind `vllm_model`, by their names."""
    async with MockServer() as server:
        server.reply = engine.reply
        worker = VLLMModel(options(server.url), name="policy_model")

        async def ask(params: dict[str, Any]) -> dict[str, Any]:
            request = gymq.ModelRequest(params, f"check/{uuid.uuid4()}", "check/0/0", 60.0)
            response = await worker.respond(request)
            note_sampling(response, request.sampling)
            return response

        async def read(prompt: list[int] | dict[str, Any], num_log_probs: int, first: int) -> PromptRead:
            found = PromptRead(**await worker.read_prompt(prompt, num_log_probs, 60.0))
            return PromptRead(token_ids=found.token_ids, log_probs=found.log_probs[first:])

        await worker.start()
        try:
            found = await check_policy(ask, source or PromptLogProbs(read), TOLERANCE)
        finally:
            await worker.stop()
    return {finding.check: finding for finding in found}


@pytest.fixture(scope="module")
def right() -> dict[str, Finding]:
    """What is found of an engine that is right."""
    return asyncio.run(check(ScriptedEngine()))


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the kinds of calls at which these tests look, and some beside them."""
    names = {"temperature 0.3", "temperature 1", "two turns with a tool", "cut after 3 tokens"}
    monkeypatch.setattr("gymq.ext.policy_check.findings.ROWS", [row for row in ROWS if row.name in names])


def verdicts(found: dict[str, Finding], verdict: str) -> set[str]:
    return {name for name, finding in found.items() if finding.verdict == verdict}


def test_a_right_engine_is_exact(right: dict[str, Finding]) -> None:
    assert verdicts(right, "differs") == set()
    assert verdicts(right, "not comparable") == {"repetition_penalty 1.2"}
    assert all(finding.largest is not None for name, finding in right.items() if name in verdicts(right, "ok") - FORM)


async def test_an_engine_that_shows_few_log_probs_is_compared_where_they_suffice() -> None:
    found = await check(ScriptedEngine(num_shown=20))
    assert verdicts(found, "differs") == set()
    comparable = {"temperature 1", "no temperature", "top_k 5, temperature 1.3", "two turns with a tool"}
    assert verdicts(found, "ok") == {*comparable, "cut after 3 tokens", *FORM}


async def test_without_a_source_log_probs_are_not_called_right() -> None:
    found = await check(ScriptedEngine(), Unknown())
    assert verdicts(found, "ok") == FORM - {"ids of prompts"}
    assert found["temperature 1"].note == "give --reference CHECKPOINT"


async def test_raw_log_probs_are_found_where_settings_are_not_neutral() -> None:
    found = await check(ScriptedEngine(faults=frozenset({"raw"})))
    differ = verdicts(found, "differs")
    assert {"temperature 0.3", "temperature 1.5", "top_p 0.8", "presence_penalty 0.5"} <= differ
    assert found["temperature 1"].verdict == "ok"
    assert all("--logprobs-mode processed_logprobs" in found[name].note for name in differ)


@pytest.mark.nightly
async def test_raw_log_probs_are_found_with_few_shown() -> None:
    found = await check(ScriptedEngine(faults=frozenset({"raw"}), num_shown=20))
    assert "--logprobs-mode processed_logprobs" in found["top_k 5, temperature 1.3"].note


@pytest.mark.parametrize("faults", [frozenset(), pytest.param(frozenset({"raw"}), marks=pytest.mark.nightly)])
async def test_settings_of_the_checkpoint_are_found(few_rows: None, faults: frozenset[str]) -> None:
    found = await check(ScriptedEngine(forced={"temperature": 0.6}, faults=faults))
    assert found["temperature 1"].verdict == "differs"
    assert "--generation-config vllm" in found["temperature 1"].note


@pytest.mark.parametrize(
    ("fault", "check_name", "said"),
    [
        ("shifted log probs", "temperature 1", "beside theirs"),
        ("other ids", "temperature 0.3", "not those that were sampled"),
        ("other prompt", "ids of prompts", "another template or tokenizer"),
        ("text tokenised again", "ends of replies", "of the text"),
    ],
)
async def test_a_fault_is_named(few_rows: None, fault: str, check_name: str, said: str) -> None:
    found = await check(ScriptedEngine(faults=frozenset({fault})))
    assert found[check_name].verdict == "differs"
    assert said in found[check_name].note


async def test_tokens_that_later_prompts_drop_are_counted(few_rows: None, right: dict[str, Finding]) -> None:
    found = await check(ScriptedEngine(faults=frozenset({"earlier replies left out"})))
    dropped, _, sampled, *_ = found["turns continue"].note.split()
    assert dropped == sampled
    assert int(sampled) > 0
    assert not right["turns continue"].note


async def command(folder: Path, *args: str) -> tuple[int | None, str]:
    """The exit status of `gymq check-policy`, and what it prints."""
    env = {name: value for name, value in os.environ.items() if name != "GYMQ_NATS"} | {"COLUMNS": "200"}
    ran = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gymq", "check-policy", *args), cwd=folder, env=env, stdout=PIPE, stderr=STDOUT
    )
    async with asyncio.timeout(300):
        printed, _ = await ran.communicate()
    return ran.returncode, printed.decode()


@pytest.mark.parametrize(
    ("faults", "status"), [(frozenset(), 0), pytest.param(frozenset({"raw"}), 1, marks=pytest.mark.nightly)]
)
async def test_the_command_checks_an_endpoint(tmp_path: Path, faults: frozenset[str], status: int) -> None:
    async with MockServer() as server:
        server.reply = ScriptedEngine(faults=faults).reply
        returned, printed = await command(tmp_path, "--model-url", server.url, "--model", "served")
    assert returned == status, printed
    assert ("differs" in printed) == (status == 1)


async def test_the_command_checks_a_model_of_a_cluster(tmp_path: Path) -> None:
    async with MockServer() as server:
        server.reply = ScriptedEngine(faults=frozenset({"raw"})).reply
        model = Instance("policy_model", "models", "vllm_model", options(server.url))
        async with Cluster([model], folder=tmp_path / "cluster", drain_s=2.0) as cluster:
            returned, printed = await command(tmp_path, "--nats", cluster.url)
            other, refused = await command(tmp_path, "--nats", cluster.url, "--model", "judge")
    lines = {line[:24].strip(): line for line in printed.splitlines()}
    assert returned == 1, printed
    assert "--logprobs-mode processed_logprobs" in lines["temperature 0.3"]
    assert "ok" in lines["temperature 1"]
    assert "ok" in lines["ids of prompts"]
    assert other == 2
    assert "the models of the cluster are policy_model" in refused


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--model-url", "http://127.0.0.1:1/v1"), "--model-url needs --model NAME"),
        (("--option", "a=1"), "--option is for --model-url"),
        (("a=1",), "need --config FILE"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    gymq: Command, here: Path, args: tuple[str, ...], said: str
) -> None:
    called = gymq("check-policy", *args)
    assert called.status == 2
    assert said in called.err


def test_an_engine_that_is_not_there_is_said_once(gymq: Command, here: Path) -> None:
    called = gymq("check-policy", "--model-url", "http://127.0.0.1:1/v1", "--model", "served")
    assert called.status == 2
    assert (called.out + called.err).count("cannot connect") == 1
