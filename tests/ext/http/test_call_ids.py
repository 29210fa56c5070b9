from __future__ import annotations

from typing import Any

from gymq.ext.http.call_ids import with_ids_of_engine, with_unique_call_ids


def called(call_id: str, name: str = "bash") -> dict[str, Any]:
    return {"type": "function_call", "id": call_id, "call_id": call_id, "name": name, "arguments": "{}"}


def output(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "done"}


def test_ids_that_start_again_in_each_reply_are_unique_for_the_program_and_the_same_for_the_engine() -> None:
    seen: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    for _ in range(4):
        [call] = with_unique_call_ids([called("bash:0")], seen)
        seen += [call, output(call["call_id"])]
        said += [called("bash:0"), output("bash:0")]
    ids = [item["call_id"] for item in seen if item["type"] == "function_call"]
    assert len(set(ids)) == 4
    assert [item["call_id"] for item in with_ids_of_engine(seen)] == [item["call_id"] for item in said]


def test_one_id_for_all_calls_of_a_reply_is_made_unique() -> None:
    calls = with_unique_call_ids([called("x"), called("x"), called("x")], [])
    assert len({item["call_id"] for item in calls}) == len({item["id"] for item in calls}) == 3
    assert calls[0] == called("x")


def test_ids_that_are_unique_stay() -> None:
    message = {"type": "message", "role": "assistant", "content": "hi"}
    output_ = [message, called("a"), called("b")]
    assert with_unique_call_ids(output_, [message, called("c"), output("c")]) == output_
    assert with_ids_of_engine(output_) == output_
