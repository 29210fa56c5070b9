"""A result becomes the record that each trainer takes."""

import base64
import json
import math
from array import array
from typing import Any

import pytest

from gymq.data.records import NotTrainable, Record
from gymq.data.routed_experts import read_experts
from gymq.data.trainer_results import encode_result, result_fields, with_lists
from gymq.protocol.messages import VerifiedRollout
from gymq.protocol.packing import pack_fields
from gymq.protocol.tokens import TOKEN_FIELDS, CallTokens, ContinuedPrompt, TokenChain
from tests.support.engine import Body
from tests.support.experts import npy
from tests.support.turns import result_of


@pytest.mark.parametrize("turns", [1, 2, 7])
def test_experts_are_those_of_the_call_that_read_the_token(turns: int) -> None:
    record = Record.of(result_of(turns))
    # Prompt 0 has two tokens; each turn has two that are sampled, of which the next call reads the second.
    calls = [0, 0, 0, *(turn for turn in range(1, turns) for _ in range(3))]
    assert record.experts().tolist() == [[[call, token]] for token, call in enumerate(calls)]
    assert len(calls) == len(record.token_ids) - 1


def test_a_sequence_with_a_call_without_experts_has_none() -> None:
    result = result_of(2)
    del result["response"]["output"][1]["routed_experts"]
    assert Record.of(result).experts() is None


@pytest.mark.parametrize(
    ("given", "expected", "name"),
    [
        (npy([[[3], [4]]], "uint8"), [[[3], [4]]], "uint8"),
        (npy([[[3], [4]]], "uint16"), [[[3], [4]]], "int16"),
        (npy([[[3], [40000]]], "uint16"), [[[3], [40000]]], "int32"),
        (npy([[[3], [4]], [[5], [6]], [[7], [8]]], "int32"), [[[3], [4]], [[5], [6]]], "int32"),
        ([[[3]], [[4]]], [[[3]], [[4]]], "int32"),
        ("nrlre1:int16:2x1x1:AAABAA==", [[[0]], [[1]]], "int16"),
    ],
)
def test_experts_are_read_in_each_form(given: Any, expected: list[Any], name: str) -> None:
    experts = read_experts(given, 2)
    assert experts.tolist() == expected
    assert experts.dtype.name == name
    experts[0] = 0  # may be written to


UNREADABLE = base64.b64encode(base64.b64decode(npy([[[3]]])).replace(b"'fortran_order'", b"(fortran_order(")).decode()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("x", "are 'x', not a .npy array in base64, as from vLLM, or nrlre1"),
        (npy([[[3]]])[:-8], "not a .npy array"),
        (UNREADABLE, "not a .npy array"),
        (npy([["a"]], "U1"), "are str32 of the shape"),
        (npy([[[0.5]]], "float32"), "are float32"),
        (npy([3, 4]), r"of the shape \(2,\)"),
        (npy([[[3]], [[4]]]), r"uint8 of the shape \(2, 1, 1\), not integers of the shape \[4, layers, K\]"),
        ("nrlre1:int16:3x1x1:AAABAA==", "not a .npy array"),
        ("nrlre1:int16:2x1x1:AAABAA==", r"int16 of the shape \(2, 1, 1\)"),
        ("nrlre1:object:1x1x1:AAAAAAAAAAA=", "not a .npy array"),
        ([[[3]], [[4, 5]]], "not a .npy array"),
        ([[["a"]]], "not a .npy array"),
        ({"a": 1}, "not a .npy array"),
    ],
)
def test_experts_that_do_not_fit_say_why(given: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_experts(given, 4)
    result = result_of(1)
    result["response"]["output"][1]["routed_experts"] = given
    with pytest.raises(NotTrainable, match="routed_experts"):
        Record.of(result).experts()


@pytest.mark.parametrize("spoil", ["no tokens", "broken chain"])
def test_what_cannot_be_trained_on_is_refused(spoil: str) -> None:
    result = result_of(2)
    for item in result["response"]["output"]:
        if spoil == "no tokens":
            item.pop("generation_token_ids", None)
        elif "prompt_token_ids" in item:
            item["prompt_token_ids"] = item["prompt_token_ids"][-1:]
    with pytest.raises(NotTrainable):
        Record.of(result)


def call(prompt: list[int], generation: list[int]) -> Body:
    log_probs = [-token / 8 for token in generation]
    tokens = {"prompt_token_ids": prompt, "generation_token_ids": generation, "generation_log_probs": log_probs}
    return {"type": "message", **tokens}


def rolled_out(*calls: Body) -> VerifiedRollout:
    response = {"id": "r", "object": "response", "output": list(calls)}
    return VerifiedRollout(
        run="r", task_index=0, rollout_index=0, agent="a", row=b"{}", response=response, reward=0.5, verdict={}
    )


def test_every_sampled_token_is_in_one_sequence_also_where_a_conversation_branches() -> None:
    first, second = call([1, 2], [10, 11]), call([1, 2, 10, 11, 3], [12])
    beside = call([1, 2, 10, 11, 3], [13, 14])  # another reply to the same prompt
    after = call([1, 2, 10, 11, 3, 13, 14, 4], [15, 16, 17])  # continues that one
    edited = call([1, 9, 3], [18])  # a history that the agent edited
    result = json.loads(encode_result(rolled_out(first, second, beside, after, edited), "error"))
    main, branches = Record.of(result), Record.branches_of(result)
    sequences = [(one.token_ids, one.is_sampled(), one.log_probs) for one in (main, *branches)]
    no, of = 0.0, {token: -token / 8 for token in range(20)}
    assert sequences == [
        (
            [1, 2, 10, 11, 3, 13, 14, 4, 15, 16, 17],
            [0, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1],
            [no, no, no, no, no, of[13], of[14], no, of[15], of[16], of[17]],
        ),
        ([1, 2, 10, 11, 3, 12], [0, 0, 1, 1, 0, 1], [no, no, of[10], of[11], no, of[12]]),
        ([1, 9, 3, 18], [0, 0, 0, 1], [no, no, no, of[18]]),
    ]
    assert {one.reward for one in branches} == {0.5}
    assert result["gymq"]["dropped_calls"] == 3


def test_a_conversation_without_branches_has_none() -> None:
    result = json.loads(encode_result(rolled_out(call([1], [2]), call([1, 2, 3], [4])), "error"))
    assert Record.branches_of(result) == []
    assert "branches" not in result["gymq"]


@pytest.mark.parametrize("log_prob", [-0.5, math.nan])
def test_a_trainer_in_python_gets_what_the_text_of_a_result_says(log_prob: float) -> None:
    ids, sampled, log_probs = array("i", [1, 2]), array("i", [3]), array("f", [-0.1])
    first = {"type": "message", **dict(zip(TOKEN_FIELDS, (ids, sampled, log_probs), strict=True)), "text": "é"}
    continued = ContinuedPrompt(3, array("i", [4]), CallTokens(ids, sampled))
    second = {**call([], [5]), "prompt_token_ids": continued, "generation_log_probs": array("d", [log_prob])}
    beside = {**call([9], [8]), "routed_experts": "x"}
    outcome = rolled_out(first, {"type": "function_call_output", "output": "7"}, second, beside)
    for given in (outcome, rolled_out(call([1], [2]))):
        packed, text = result_fields(given, "error"), encode_result(given, "error")
        assert json.dumps(with_lists(packed)) == json.dumps(json.loads(text))
        assert Record.of(packed) == Record.of(json.loads(text))
        assert Record.branches_of(packed) == Record.branches_of(json.loads(text))


def test_the_prompts_of_a_conversation_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, items = TokenChain(None), []
    tokens: list[int] = []
    for turn in range(20):
        tokens += [turn, turn]
        said = call(tokens, [turn, 7])
        pack_fields(said, "call")
        chain, output = chain.after([said])
        tokens += [turn, 7]
        items += output
    outcome = rolled_out(*items)
    expected = Record.of(json.loads(encode_result(outcome, "error")))
    monkeypatch.delattr(ContinuedPrompt, "full")
    assert Record.of(result_fields(outcome, "error")) == expected
    assert expected.token_ids == tokens
