"""Token ids and log probs: what the engine said is what the trainer reads."""

import copy
import pickle
import struct
import sys
from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.protocol import tokens
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BadMessage, Generated, Verify
from gymq.protocol.packing import pack
from gymq.protocol.tokens import CallTokens, ContinuedPrompt, TokenChain, decode_ext, encode_ext, encode_json

decode = Decoder(Generated)
floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
floats64 = st.floats(allow_nan=False, allow_infinity=False)


def response(ids: Any, log_probs: Any, prompt: Any = ()) -> dict[str, Any]:
    item = {"prompt_token_ids": list(prompt), "generation_token_ids": ids, "generation_log_probs": log_probs}
    return {"output": [{"type": "message"}, item]}


def packed(ids: Any, log_probs: Any) -> dict[str, Any]:
    """The item with the tokens, as it arrives."""
    asked = response(ids, log_probs, prompt=[7])
    pack(asked)
    arrived: dict[str, Any] = decode(encode(Generated(response=asked))).response["output"][1]
    return arrived


@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), floats32)))
def test_what_an_engine_samples_travels_exactly_in_eight_bytes_a_token(sampled: list[tuple[int, float]]) -> None:
    ids, log_probs = [token for token, _ in sampled], [log_prob for _, log_prob in sampled]
    item = packed(ids, log_probs)
    assert item["generation_token_ids"].tolist() == ids
    assert list(map(repr, item["generation_log_probs"])) == list(map(repr, log_probs))  # 0.0 and -0.0 differ
    assert (item["generation_token_ids"].typecode, item["generation_log_probs"].typecode) == ("i", "f")


@given(st.lists(floats64, min_size=1))
def test_log_probs_lose_no_bit(log_probs: list[float]) -> None:
    item = packed(list(range(len(log_probs))), log_probs)
    assert item["generation_log_probs"].tolist() == log_probs


@pytest.mark.parametrize("value", [-0.1, 1e300, 5e-324, -1e39, 1 + 2**-40])
def test_a_log_prob_that_float32_cannot_hold_keeps_float64(value: float) -> None:
    assert packed([1, 2], [-0.5, value])["generation_log_probs"] == array("d", [-0.5, value])


def test_a_response_of_100_000_tokens_is_exact_and_small() -> None:
    ids = [(position * 7919) % 151_936 for position in range(100_000)]
    log_probs = array("f", [-1 / (1 + position % 1000) for position in range(100_000)]).tolist()
    asked = response(ids, log_probs, prompt=ids)
    pack(asked)
    body = encode(Generated(response=asked))
    item = decode(body).response["output"][1]
    assert item["prompt_token_ids"].tolist() == ids
    assert item["generation_token_ids"].tolist() == ids
    assert item["generation_log_probs"].tolist() == log_probs
    assert len(body) < 100_000 * 12 + 1000


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_log_prob_that_is_no_finite_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"output\[1\].generation_log_probs: log probs must be finite"):
        pack(response([1], [value]))


@pytest.mark.parametrize("value", [None, "x", [1.0], 10**400, {}])
def test_a_log_prob_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"output\[1\].generation_log_probs: log probs must be numbers"):
        pack(response([1], [value]))


@pytest.mark.parametrize("value", [1.0, 1.7, None, "x", "1.5", 2**31, -(2**31) - 1, 2**100, [1], float("nan")])
def test_an_id_that_is_no_32_bit_integer_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"output\[1\].generation_token_ids: token ids must be 32-bit integers"):
        pack(response([value], [-1.0]))


def test_numbers_written_as_text_become_numbers() -> None:
    item = packed(["12", 13], ["-0.5", -1])
    assert item["generation_token_ids"].tolist() == [12, 13]
    assert item["generation_log_probs"].tolist() == [-0.5, -1.0]


@pytest.mark.parametrize("log_probs", [[], [-1.0], [-1.0, -1.0, -1.0], array("f", [-1.0]), array("d", [])])
def test_another_number_of_log_probs_than_tokens_is_refused(log_probs: Any) -> None:
    with pytest.raises(ValueError, match=r"output\[1\]: \d log probs for 2 generated tokens"):
        pack(response([1, 2], log_probs))


def test_packing_twice_changes_nothing() -> None:
    asked = response([1, 2], [-1.0, -0.1])
    pack(asked)
    once = asked["output"][1] | {}
    pack(asked)
    assert asked["output"][1] == once


def test_a_response_without_tokens_is_left_alone() -> None:
    asked: dict[str, Any] = {"output": [{"type": "message", "content": [1, 2]}]}
    pack(asked)
    assert asked == {"output": [{"type": "message", "content": [1, 2]}]}


@pytest.mark.parametrize("code", [1, 2, 3])
@pytest.mark.parametrize("num_bytes", [1, 3, 5, 7, 9])
def test_an_array_that_ends_within_a_number_is_refused(code: int, num_bytes: int) -> None:
    ext = msgspec.msgpack.Ext(code, bytes(num_bytes))
    with pytest.raises(BadMessage):
        decode(msgspec.msgpack.encode({"type": "generated.v1", "response": {"a": ext}}))


@pytest.mark.parametrize("typecode", ["b", "h", "q", "Q", "u" if sys.version_info < (3, 13) else "w"])
def test_an_array_of_another_type_is_refused(typecode: str) -> None:
    with pytest.raises(BadMessage, match=r"array has no wire form - at `\$\.response\.a`"):
        encode(Generated(response={"a": array(typecode)}))


def test_arrays_are_little_endian_on_the_wire() -> None:
    assert bytes(encode_ext(array("i", [1, -2])).data) == struct.pack("<ii", 1, -2)
    assert bytes(encode_ext(array("f", [0.5])).data) == struct.pack("<f", 0.5)
    assert bytes(encode_ext(array("d", [0.1])).data) == struct.pack("<d", 0.1)


def test_a_big_endian_machine_writes_and_reads_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "sys", type("BigEndian", (), {"byteorder": "big"}))
    swapped = array("i", struct.pack(">ii", 1, -2)) if sys.byteorder == "little" else array("i", [1, -2])
    kept = swapped[:]
    ext = encode_ext(swapped)
    assert bytes(ext.data) == struct.pack("<ii", 1, -2)
    assert swapped == kept
    assert decode_ext(1, memoryview(ext.data)) == swapped


def test_arrays_are_lists_in_json() -> None:
    assert (
        msgspec.json.encode({"a": array("i", [1]), "b": array("f", [0.5])}, enc_hook=encode_json)
        == b'{"a":[1],"b":[0.5]}'
    )


def conversation(*turns: tuple[list[int], list[int]]) -> list[dict[str, Any]]:
    """Items of calls that continue one another, of what was put before each and what was sampled."""
    items: list[dict[str, Any]] = []
    before: CallTokens | None = None
    for suffix, generation in turns:
        new, sampled = array("i", suffix), array("i", generation)
        if before is None:
            prompt: array[int] | ContinuedPrompt = new
        else:
            prompt = ContinuedPrompt(len(before.prompt) + len(before.generation), new, before)
        items += [
            {"prompt_token_ids": prompt, "generation_token_ids": sampled},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
        ]
        before = CallTokens(prompt, sampled)
    return items


TURNS = [([1, 2], [3]), ([4], [5, 6]), ([7, 8], [9])]
PROMPTS = [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7, 8]]
decode_verify = Decoder(Verify)


def prompts(items: list[dict[str, Any]]) -> list[list[int]]:
    return [item["prompt_token_ids"].tolist() for item in items if "prompt_token_ids" in item]


def verify(output: list[Any]) -> Verify:
    return Verify(rollout="r/0/0", timeout_s=1.0, number=1, row=b"{}", response={"output": output})


def test_continued_prompts_read_as_whole_ones_and_travel_as_their_suffixes() -> None:
    items = conversation(*TURNS)
    assert prompts(items) == PROMPTS
    last = items[4]["prompt_token_ids"]
    assert (len(last), last[3], list(last[-2:]), list(last)) == (8, 4, [7, 8], PROMPTS[2])
    assert last == array("i", PROMPTS[2])
    assert last == PROMPTS[2]
    assert last != PROMPTS[1]
    arrived = decode_verify(encode(verify(items))).response["output"]
    assert prompts(arrived) == PROMPTS
    assert [type(item["prompt_token_ids"]) for item in arrived[::2]] == [array, ContinuedPrompt, ContinuedPrompt]
    assert msgspec.json.decode(msgspec.json.encode(items, enc_hook=encode_json))[4]["prompt_token_ids"] == PROMPTS[2]


def test_a_long_conversation_takes_as_many_bytes_as_it_has_tokens() -> None:
    turns = [([number] * 500, [number] * 200) for number in range(400)]
    items = conversation(*turns)
    body = msgspec.msgpack.encode(items, enc_hook=encode_ext)
    assert len(body) < 400 * (700 * 4 + 200)
    last = items[-2]["prompt_token_ids"]
    assert len(last.full()) == 399 * 700 + 500
    assert pickle.loads(pickle.dumps(last)) == copy.deepcopy(last) == last


@pytest.mark.parametrize("kept", [[4], [0, 4], [2, 4], [2, 3, 4], [4, 0, 2]])
def test_a_prompt_whose_beginning_is_not_in_a_message_travels_whole(kept: list[int]) -> None:
    items = conversation(*TURNS)
    sent = [items[position] for position in kept]
    arrived = decode_verify(encode(verify(sent))).response["output"]
    assert prompts(arrived) == prompts(sent)
    assert prompts(items) == PROMPTS


def test_each_state_of_an_environment_is_a_conversation_of_its_own() -> None:
    items = conversation(*TURNS)
    arrived = decode_verify(encode(verify([items[:2], items[:4], items[2:]]))).response["output"]
    assert [prompts(state) for state in arrived] == [PROMPTS[:1], PROMPTS[:2], PROMPTS[1:]]


@pytest.mark.parametrize(
    ("prefix_length", "message"),
    [(4, "continues 4 tokens, but there are 3 before"), (2**63, "continues 9223372036854775808 tokens")],
)
def test_a_continued_prompt_of_another_length_is_refused(prefix_length: int, message: str) -> None:
    items = conversation(*TURNS)
    items[2]["prompt_token_ids"].prefix_length = prefix_length
    body = msgspec.msgpack.encode(verify(items), enc_hook=encode_ext)
    with pytest.raises(BadMessage, match=rf"\[2\].prompt_token_ids: {message}"):
        decode_verify(body)


def test_a_continued_prompt_that_continues_nothing_is_refused() -> None:
    body = msgspec.msgpack.encode(verify(conversation(*TURNS)[2:]), enc_hook=encode_ext)
    with pytest.raises(BadMessage, match=r"\[0\].prompt_token_ids: continues a call that is not there"):
        decode_verify(body)


@pytest.mark.parametrize("data", [b"", b"1234567", b"12345678abc"])
def test_a_damaged_continued_prompt_is_refused(data: bytes) -> None:
    item = {"prompt_token_ids": msgspec.msgpack.Ext(4, data), "generation_token_ids": []}
    body = msgspec.msgpack.encode(verify([item]), enc_hook=encode_ext)
    with pytest.raises(BadMessage):
        decode_verify(body)


def test_replies_to_the_same_call_are_chains_of_their_own() -> None:
    def called(prompt: list[int], generated: int) -> list[dict[str, Any]]:
        return [{"prompt_token_ids": array("i", prompt), "generation_token_ids": array("i", [generated])}]

    chain, _ = TokenChain(None).after(called([1, 2], 3))
    after_one, _ = chain.after(called([1, 2, 3, 4], 5))
    after_other, _ = chain.after(called([1, 2, 3, 6], 7))
    _, (one,) = after_one.after(called([1, 2, 3, 4, 5, 8], 9))
    _, (other,) = after_other.after(called([1, 2, 3, 4, 5, 8], 9))
    assert isinstance(one["prompt_token_ids"], ContinuedPrompt)
    assert one["prompt_token_ids"].suffix == array("i", [8])
    assert isinstance(other["prompt_token_ids"], ContinuedPrompt)
    assert (other["prompt_token_ids"].prefix_length, other["prompt_token_ids"].suffix) == (3, array("i", [4, 5, 8]))
    assert one["prompt_token_ids"] == other["prompt_token_ids"]


def called(*calls: tuple[list[int], list[int]]) -> list[dict[str, Any]]:
    """Items of the calls of a conversation, as a model worker sends them one after the other."""
    chain, items = TokenChain(None), []
    for prompt, generation in calls:
        item = {"prompt_token_ids": array("i", prompt), "generation_token_ids": array("i", generation)}
        chain, sent = chain.after([item])
        items += sent
    return items


few_ids = st.lists(st.integers(0, 2), max_size=6)


@given(st.lists(st.tuples(few_ids, few_ids), max_size=6))
def test_prompts_arrive_whatever_they_share(calls: list[tuple[list[int], list[int]]]) -> None:
    arrived = decode_verify(encode(verify(called(*calls)))).response["output"]
    assert prompts(arrived) == [prompt for prompt, _ in calls]


def test_a_template_that_drops_the_thoughts_of_earlier_turns_costs_what_is_new() -> None:
    calls: list[tuple[list[int], list[int]]] = []
    kept: list[int] = []
    for turn in range(200):
        prompt = [*kept, *([turn] * 50)]
        generation = [*range(100), *([turn] * 20)]  # thoughts and an answer
        calls.append((prompt, generation))
        kept = [*prompt, *generation[100:]]
    items = called(*calls)
    assert prompts(items) == [prompt for prompt, _ in calls]
    assert len(encode(verify(items))) < 200 * 4 * (120 + 70 + 20)


def test_many_prompts_that_share_little_are_read_soon() -> None:
    items = called(*[([0, number], [number]) for number in range(20_000)])
    arrived = decode_verify(encode(verify(items))).response["output"]
    assert prompts(arrived) == [[0, number] for number in range(20_000)]
