"""What is sent is what arrives."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.protocol.codec import COMPRESS_ABOVE_BYTES, Decoder, compressed, encode
from gymq.protocol.journal_messages import JournalEntry
from gymq.protocol.messages import (
    BadMessage,
    DeadLetter,
    Fail,
    FailureClass,
    Generate,
    Generated,
    Message,
    Seed,
    Submission,
    Task,
    ToolResult,
    VerifiedRollout,
    Verify,
)

from .builders import EXAMPLES, MESSAGE_TYPES, ROW, json_values

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

by_name = pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)


def test_every_message_type_has_an_example() -> None:
    assert [type(example) for example in sorted(EXAMPLES, key=lambda example: type(example).__name__)] == MESSAGE_TYPES


@by_name
def test_every_message_arrives_as_it_was_sent(message: Message) -> None:
    assert Decoder(type(message))(encode(message)) == message


@by_name
def test_every_message_is_told_apart_by_its_tag(message: Message) -> None:
    assert Decoder(*MESSAGE_TYPES)(encode(message)) == message


def test_a_failure_class_of_a_later_release_is_read_as_one_that_may_be_tried_again() -> None:
    body = encode(Fail(failure_class=FailureClass.MODEL_FAILED, message="no more tokens", retryable=True))
    later = body.replace(b"model_failed", b"out_of_quota")
    assert Decoder(Fail)(later) == Fail(
        failure_class=FailureClass.COMPONENT_FAILED, message="no more tokens", retryable=True
    )


BY_HAND = [example for example in EXAMPLES if not isinstance(example, JournalEntry)]  # an agent's own notes


@pytest.mark.parametrize("message", BY_HAND, ids=lambda message: type(message).__name__)
def test_every_message_can_be_written_as_json_by_hand(message: Message) -> None:
    plain = msgspec.msgpack.decode(encode(message))
    for name, value in plain.items():
        if isinstance(value, bytes):
            plain[name] = value.decode("latin-1")  # DeadLetter and Profile hold bytes that are not text
    body = b" \r\n\t" + msgspec.json.encode(plain)
    expected = Decoder(type(message))(encode(message))
    for name, value in plain.items():
        if isinstance(getattr(expected, name, None), bytes):
            setattr(expected, name, value.encode())
    assert Decoder(*MESSAGE_TYPES)(body) == expected


@pytest.mark.parametrize("message_type", [Task, Seed, Verify])
def test_a_row_written_by_hand_may_be_an_object_or_text(message_type: type[Message]) -> None:
    example = next(example for example in EXAMPLES if type(example) is message_type)
    plain = msgspec.msgpack.decode(encode(example))
    for row in (msgspec.json.decode(ROW), ROW.decode()):
        assert Decoder(message_type)(msgspec.json.encode(plain | {"row": row})) == example


def test_an_unseeded_session_can_be_asked_for_by_hand() -> None:
    seed = Decoder(Seed)(b'{"type": "seed.v1", "rollout": "x", "timeout_s": 5, "row": null}')
    assert seed.row is None


def test_a_large_integer_in_a_row_written_by_hand_is_kept_exactly() -> None:
    body = b'{"type": "seed.v1", "rollout": "x", "timeout_s": 5, "row": {"answer": %d}}' % 2**200
    assert msgspec.json.decode(Decoder(Seed)(body).row) == {"answer": 2**200}


def test_the_row_of_a_submission_keeps_every_field() -> None:
    row = {"a": [1, -1, 2**64 - 1, 0.1, None, True, "\u00e9\u4e2d"], "b": {"c": {}}}
    body = msgspec.json.encode({"type": "submission.v1", "run": "r", "row": row})
    submission: Submission = Decoder(Submission)(body)
    assert msgspec.msgpack.decode(submission.row) == row


def test_fields_at_their_default_are_left_out() -> None:
    assert b"status" not in encode(ToolResult(output="3"))
    assert b"status" in encode(ToolResult(output="3", status=422))


@given(st.dictionaries(st.text(), json_values, max_size=6))
def test_any_json_object_passes_through_a_model_call_unchanged(params: dict[str, Any]) -> None:
    request = Generate(rollout="x", timeout_s=1.0, params=params, session="s")
    assert Decoder(Generate)(encode(request)) == request


@given(st.dictionaries(st.text(), json_values, max_size=6))
def test_any_json_object_written_by_hand_arrives_unchanged(response: dict[str, Any]) -> None:
    body = msgspec.json.encode({"type": "generated.v1", "response": response})
    assert Decoder(Generated)(body) == Generated(response=response)


@given(st.binary())
def test_binary_fields_are_not_touched(body: bytes) -> None:
    letter = DeadLetter(subject="s", reason="r", body=body, at=0.0)
    assert Decoder(DeadLetter)(encode(letter)) == letter


@pytest.mark.parametrize("more_bytes", [-1000, 1000, 8 << 20])
def test_only_large_bodies_are_compressed(more_bytes: int) -> None:
    text = "x" * (COMPRESS_ABOVE_BYTES + more_bytes)
    message = Generated(response={"output": [text]})
    body = compressed(encode(message))
    assert body.startswith(ZSTD_MAGIC) is (more_bytes > 0)
    assert len(body) < COMPRESS_ABOVE_BYTES
    assert Decoder(Generated)(body) == message


BROKEN: list[tuple[Any, str]] = [
    ({"output": [{"n": 2**64}]}, "$.response.output[0].n"),
    ({"output": [0, -(2**63) - 1]}, "$.response.output[1]"),
    ({"text": "\ud800"}, "$.response.text"),
    ({"o": (1, object())}, "$.response.o[1]"),
    ({"o": {"\ud800": 1}}, "$.response.o"),
    ({1: {2: 2**70}}, "$.response[1][2]"),
]


@pytest.mark.parametrize(("response", "path"), BROKEN)
def test_what_has_no_wire_form_is_refused_with_its_path(response: Any, path: str) -> None:
    with pytest.raises(BadMessage) as refused:
        encode(Generated(response=response))
    assert str(refused.value).endswith(f"at `{path}`")


def test_a_value_that_contains_itself_is_refused() -> None:
    response: dict[str, Any] = {"output": []}
    response["output"].append(response)
    with pytest.raises(BadMessage, match=r"at `\$\.response`"):
        encode(Generated(response=response))


def test_a_message_too_large_to_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymq.protocol.codec.MAX_BODY_BYTES", 100_000)
    with pytest.raises(BadMessage, match="exceeds the limit of 100000"):
        encode(Generated(response={"output": ["x" * 100_000]}))


def test_an_integer_of_64_bits_is_the_largest() -> None:
    message = VerifiedRollout(
        run="r", task_index=0, rollout_index=0, agent="a", row=b"", reward=0.0, response={"n": [2**64 - 1, -(2**63)]}
    )
    assert Decoder(VerifiedRollout)(encode(message)) == message
