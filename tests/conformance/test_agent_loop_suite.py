"""The agent loop suite notices an agent that does something else than the recorded trace."""

from typing import Any

import msgspec
import pytest

import gymq
from gymq.protocol import subjects

from .cases import OWN_CASES, CoreCase, read_file
from .comparison import Mismatch
from .core import check_core
from .suites import agent_loop
from .suites.agent_loop import normalise


def own_case(name: str) -> CoreCase:
    cases = {case.id: case for case in read_file(OWN_CASES / "core_agent_loop.jsonl").cases}
    case = cases[name]
    assert isinstance(case, CoreCase)
    return case


async def differences(monkeypatch: pytest.MonkeyPatch, name: str, agent: type[gymq.Agent]) -> str:
    monkeypatch.setattr(agent_loop, "SimpleAgent", agent)
    with pytest.raises(Mismatch) as caught:
        await check_core(agent_loop, own_case(name))
    return str(caught.value)


class Asking(gymq.Agent):
    class Options(gymq.AgentOptions):
        max_steps: int | None = None

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        await rollout.respond()


async def test_a_tool_call_left_out_differs(monkeypatch):
    found = await differences(monkeypatch, "ag-one-tool", Asking)
    assert "answer.trace: expected 5 elements, got 3" in found
    assert "unused_model_replies: expected 0, got 1" in found


async def test_a_model_call_too_many_fails_the_rollout(monkeypatch):
    class Twice(Asking):
        async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
            await rollout.respond()
            await rollout.respond()

    assert "status: expected 200, got 500" in await differences(monkeypatch, "ag-plain", Twice)


async def test_an_invented_reward_differs(monkeypatch):
    class Generous(Asking):
        async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
            await super().run(rollout)
            return gymq.Verdict(2.0)

    assert "final.reward: expected 1.0, got 2.0" in await differences(monkeypatch, "ag-plain", Generous)


async def test_a_response_other_than_the_verified_one_differs(monkeypatch):
    class Late(Asking):
        async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
            verdict = await super().run(rollout)
            rollout.record({"type": "message", "role": "assistant", "content": "late"})
            return verdict

    assert 'final.response: expected "@verify.response"' in await differences(monkeypatch, "ag-plain", Late)


async def test_a_call_outside_the_seeded_session_differs(monkeypatch):
    class Astray(Asking):
        async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
            await rollout.respond()
            session._address = subjects.SESSION.of("worker", "other")

    found = await differences(monkeypatch, "ag-plain", Astray)
    assert found == "a request went to gym.session.worker.other, expected gym.session.worker.session"


def plain_case(**changes: Any) -> CoreCase:
    """The recorded case of one model call and a verdict, with another input and only the expectations given."""
    case = own_case("ag-plain")
    expect = changes.pop("expect")
    return msgspec.structs.replace(case, input={**case.input, **changes}, expect={**case.expect, **expect})


SEED, GENERATE, VERIFY = own_case("ag-plain").expect["trace"]


async def test_a_failing_seed_ends_the_rollout_before_the_model_is_asked():
    expect = {"trace": [SEED], "status": 500, "final": None, "unused_model_replies": 1}
    await check_core(agent_loop, plain_case(seed={"status": 500, "body": "no"}, expect=expect))


@pytest.mark.parametrize(
    "model",
    [
        [],
        [{"status": 503, "body": "busy"}],
        [{"body": "no object"}],
        [{"body": {"output": "no list"}}],
    ],
    ids=["none", "status", "text", "nonsense"],
)
async def test_a_failing_model_ends_the_rollout_unverified(model):
    expect = {"trace": [SEED, GENERATE], "status": 500, "final": None, "unused_model_replies": 0}
    await check_core(agent_loop, plain_case(model=model, expect=expect))


async def test_a_failing_verifier_is_no_reward():
    expect = {"trace": [SEED, GENERATE, VERIFY], "status": 500, "final": None}
    await check_core(agent_loop, plain_case(verify={"status": 500, "body": "no"}, expect=expect))


async def test_what_the_verifier_adds_is_in_the_result():
    final = {**own_case("ag-plain").expect["final"], "reward": 0.25, "note": "close"}
    case = plain_case(verify={"reward": 0.25, "extra": {"note": "close"}}, expect={"final": final})
    await check_core(agent_loop, case)


async def test_a_row_that_does_not_fit_is_refused_before_anything_is_called():
    request = {"responses_create_params": {"input": "q", "inptu": "q"}}
    expect = {"trace": [], "status": 422, "final": None, "unused_model_replies": 1}
    await check_core(agent_loop, plain_case(request=request, expect=expect))


async def test_the_responses_operation_neither_seeds_nor_verifies():
    (reply,) = own_case("ag-plain").input["model"]
    request = SEED["body"]["responses_create_params"]
    case = plain_case(request=request, endpoint="/v1/responses", expect={"trace": [GENERATE], "final": reply["body"]})
    await check_core(agent_loop, case)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"to": "model", "path": "/", "cookies": {"a": 1}}, {"to": "model", "path": "/"}),
        ({"input": [], "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, {"input": []}),
        ({"role": "user", "type": "message"}, {"role": "user"}),
        ([{"deep": {"role": "user", "type": "message"}}], [{"deep": {"role": "user"}}]),
    ],
)
def test_what_says_nothing_is_dropped(value, kept):
    assert normalise(value) == kept


@pytest.mark.parametrize(
    "value",
    [
        {"cookies": {"a": 1}},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"input": [], "tools": [{}], "tool_choice": "none", "parallel_tool_calls": False},
        {"type": "message"},
        {"role": "user", "type": "other"},
    ],
)
def test_what_says_something_is_kept(value: Any):
    assert normalise(value) == value
