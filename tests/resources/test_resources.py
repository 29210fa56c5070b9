"""What an environment does with its state, its tools and its judges."""

from typing import Any

import pytest

import gymq
from gymq.testing import ScriptedModel


async def test_a_session_that_is_seeded_again_closes_its_state() -> None:
    closed = []

    class Counting(gymq.Resources[gymq.Row, int]):
        async def open(self, row: Any) -> int:
            return int(row["number"])

        async def close(self, state: int) -> None:
            closed.append(state)

        async def verify(self, request: gymq.VerifyRequest[gymq.Row, int]) -> float:
            return 1.0

    environment = Counting({})
    assert await environment.reseed(await environment.open({"number": 1}), {"number": 2}) == 2
    assert closed == [1]


async def test_a_tool_gets_the_state_only_if_it_asks_for_it() -> None:
    class Tools(gymq.Resources[gymq.Row, int]):
        @gymq.tool
        async def without(self, text: str) -> str:
            return text

        @gymq.tool
        async def counted(self, state: int, text: str) -> str:
            return f"{text} {state}"

    tools = Tools({})
    assert [await tools.call_tool(7, name, {"text": "a"}) for name in ("without", "counted")] == ["a", "a 7"]


async def test_a_judge_that_can_be_set_right_is_a_failure_that_can_be_cured() -> None:
    async def answer(_model: str, _params: dict[str, Any]) -> dict[str, Any]:
        raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "the key is wrong", curable=True)

    environment: gymq.Resources[gymq.Row] = gymq.Resources({})
    environment.models = ScriptedModel(answer)
    with pytest.raises(gymq.JudgeFailed, match="the key is wrong") as failed:
        await environment.ask("judge", {"input": "?"})
    assert failed.value.curable
