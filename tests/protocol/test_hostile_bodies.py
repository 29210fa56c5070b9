"""Whatever arrives, a decoder gives a message or says in a sentence why not."""

import os
import struct
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gymq.protocol.codec import Decoder, compressed, encode
from gymq.protocol.messages import (
    MAX_BODY_BYTES,
    Accepted,
    BadMessage,
    BlobRef,
    Close,
    Generated,
    Message,
    Seeded,
    Submission,
    Task,
    Verified,
    VerifiedRollout,
)

from .builders import EXAMPLES, MESSAGE_TYPES, json_values

decode_any = Decoder(*MESSAGE_TYPES)
examples = st.sampled_from(EXAMPLES)
wrong_values: list[Any] = [None, True, -1, 2**70, 1.5, float("nan"), float("inf"), "x", b"x", [], {}, [[]], {"a": 1}]
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)


def refusal(body: bytes, *types: type[Message]) -> str:
    """The sentence with which a body is refused."""
    decode = Decoder(*types) if types else decode_any
    with pytest.raises(BadMessage) as refused:
        decode(body)
    return str(refused.value)


def read(body: bytes) -> None:
    """Decode a body that may be good or bad; no other error is let through."""
    try:
        message = decode_any(body)
    except BadMessage:
        return
    assert isinstance(message, Message)


def plain(message: Message) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.msgpack.decode(encode(message))
    return value


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_read(body: bytes) -> None:
    read(body)


@given(st.binary(max_size=200), st.sampled_from([b"{", b" {", b'{"type":', b"\x28\xb5\x2f\xfd", b"\x81\xa4type"]))
def test_random_bytes_behind_a_known_beginning_are_refused_or_read(body: bytes, beginning: bytes) -> None:
    read(beginning + body)


@given(json_values)
def test_any_json_value_is_refused_or_read(value: Any) -> None:
    read(b" " + msgspec.json.encode(value))
    read(msgspec.msgpack.encode(value))


@given(examples, st.data())
def test_a_damaged_body_is_refused_or_read(example: Message, data: st.DataObject) -> None:
    body = bytearray(encode(example))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(body))


@every_example
def test_every_truncation_is_refused(example: Message) -> None:
    body = encode(example)
    for length in range(len(body)):
        refusal(body[:length])


@every_example
def test_bytes_after_the_message_are_refused(example: Message) -> None:
    refusal(encode(example) + b"\xc0")


@every_example
def test_a_field_of_a_later_version_is_skipped(example: Message) -> None:
    assert decode_any(msgspec.msgpack.encode(plain(example) | {"colour": 1})) == decode_any(encode(example))


@every_example
def test_an_unknown_field_in_what_a_person_wrote_is_refused_by_name(example: Message) -> None:
    tag = type(example).__struct_config__.tag
    assert "unknown field 'colour'" in refusal(msgspec.json.encode({"type": tag, "colour": 1}))


@every_example
def test_a_field_of_another_type_is_refused_by_its_path(example: Message) -> None:
    members = plain(example)
    types = {field.name: field.type for field in msgspec.structs.fields(type(example))}
    for name in members:
        if name == "type" or types[name] is msgspec.Raw:
            continue
        body = msgspec.msgpack.encode(members | {name: msgspec.msgpack.Ext(9, b"")})
        assert "unknown extension type 9" in refusal(body) or f"`$.{name}" in refusal(body)
        wrong: Any = 7 if isinstance(members[name], str | bytes | list | dict) else "seven"
        assert f"`$.{name}" in refusal(msgspec.msgpack.encode(members | {name: wrong}))


@every_example
def test_a_missing_field_is_refused_by_name(example: Message) -> None:
    for field in msgspec.structs.fields(type(example)):
        if field.required:
            members = plain(example)
            del members[field.name]
            assert f"`{field.name}`" in refusal(msgspec.msgpack.encode(members))


@every_example
def test_another_message_is_refused(example: Message) -> None:
    other = next(other for other in MESSAGE_TYPES if other is not type(example))
    assert "`$.type`" in refusal(encode(example), other)


@given(examples, st.data())
def test_wrong_values_in_any_field_are_refused_or_read(example: Message, data: st.DataObject) -> None:
    members = plain(example)
    name = data.draw(st.sampled_from(sorted(members)))
    value = data.draw(st.sampled_from(wrong_values))
    if value != 2**70:
        read(msgspec.msgpack.encode(members | {name: value}))
    if not any(isinstance(member, bytes) for member in (*members.values(), value)):
        read(msgspec.json.encode(members | {name: value}))


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdc\x00\x01", b"\xde\x00\x01\xa1a"])
@pytest.mark.parametrize("message_type", ["generated.v1", "submission.v1", "verify.v1"])
def test_deep_nesting_is_refused(opening: bytes, message_type: str) -> None:
    members = {"generated.v1": "response", "submission.v1": "row", "verify.v1": "response"}
    tag = message_type.encode()
    name = members[message_type].encode()
    head = b"\x82\xa4type" + bytes([0xA0 + len(tag)]) + tag + bytes([0xA0 + len(name)]) + name
    assert refusal(head + b"\x81\xa1a" + opening * 100_000 + b"\xc0") == "nested too deeply"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deeply_nested_json_is_refused(opening: bytes) -> None:
    assert refusal(b'{"type":"generated.v1","response":' + opening * 100_000) == "nested too deeply"


@pytest.mark.parametrize("size", [0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("opening", [b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"])
def test_a_size_beyond_the_body_reserves_nothing(opening: bytes, size: int) -> None:
    head = b"\x82\xa4type\xacgenerated.v1\xa8response\x81\xa1a"
    assert "truncated" in refusal((head + opening + struct.pack(">I", size)) + b"\x01")
    assert "truncated" in refusal(head + (opening + struct.pack(">I", size)) * 100)


@pytest.mark.parametrize("code", [-128, -2, 0, 5, 127])
def test_an_unknown_extension_type_is_refused(code: int) -> None:
    body = msgspec.msgpack.encode({"type": "generated.v1", "response": {"a": msgspec.msgpack.Ext(code, b"1234")}})
    assert f"extension type {code}" in refusal(body)


def test_a_date_that_does_not_exist_is_refused() -> None:
    body = msgspec.msgpack.encode({"type": "generated.v1", "response": {"a": msgspec.msgpack.Ext(-1, b"\xff" * 12)}})
    refusal(body)


@pytest.mark.parametrize("key", [b"\x80", b"\xd6\x01\x00\x00\x00\x00"])
def test_a_map_key_that_cannot_be_one_is_refused(key: bytes) -> None:
    refusal(b"\x82\xa4type\xacgenerated.v1\xa8response\x81\xa1a\x81" + key + b"\x01")


def test_text_that_is_no_utf8_is_refused() -> None:
    refusal(b"\x82\xa4type\xacgenerated.v1\xa8response\x81\xa1a\xa2\xff\xfe")
    refusal(b'{"type":"generated.v1","response":{"a":"\xff\xfe"}}')


def test_half_a_surrogate_pair_in_json_is_refused() -> None:
    refusal(b'{"type":"generated.v1","response":{"a":"\\ud800"}}')


@pytest.mark.parametrize("digits", [20, 400, 100_000])
def test_an_integer_beyond_64_bits_written_by_hand_is_refused_with_its_path(digits: int) -> None:
    text = refusal(b'{"type":"generated.v1","response":{"output":[' + b"9" * digits + b"]}}")
    assert "`$" in text
    if digits == 20:
        assert "`$.response.output[0]`" in text


def test_a_number_too_large_for_a_float_is_refused() -> None:
    refusal(b'{"type":"verified.v1","reward":1e999}')


@pytest.mark.parametrize("body", [b" [1]", b" 7", b' "x"', b'{"type": ["verified.v1"]}', b'{"type": null}', b"{}"])
def test_json_that_is_no_message_is_refused(body: bytes) -> None:
    refusal(body)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_no_finite_number_is_refused(number: float) -> None:
    example = plain(next(example for example in EXAMPLES if isinstance(example, VerifiedRollout)))
    assert "`$.reward`" in refusal(msgspec.msgpack.encode(example | {"reward": number}), VerifiedRollout)
    assert "`$.reward`" in refusal(msgspec.msgpack.encode({"type": "verified.v1", "reward": number}), Verified)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_timeout_that_is_none_is_refused(seconds: float) -> None:
    body = msgspec.msgpack.encode({"type": "close.v1", "rollout": "x", "timeout_s": seconds})
    assert "`$.timeout_s`" in refusal(body, Close)


NO_TOKENS = ["", "a.b", "a b", "*", ">", "x\n", "\nx", "x\r\nPUB gym.tasks 0\r\n\r\n", "a" * 65, "\u00e9", "a\x00"]


@pytest.mark.parametrize("name", NO_TOKENS)
def test_a_name_that_cannot_be_part_of_a_subject_is_refused(name: str) -> None:
    refusal(msgspec.msgpack.encode({"type": "accepted.v2", "role": "model", "worker": name}), Accepted)
    task = plain(next(example for example in EXAMPLES if isinstance(example, Task)))
    refusal(msgspec.msgpack.encode(task | {"run": name}), Task)
    refusal(msgspec.msgpack.encode(task | {"agent": name * 4}), Task)  # names of instances may be four times as long
    refusal(msgspec.msgpack.encode({"type": "submission.v1", "run": name, "row": {}}), Submission)


@pytest.mark.parametrize("subject", ["gym.tasks", "gym.tasks.r.a", "gym.session.w", "gym.session.w.*", "gym.session.>"])
def test_a_session_at_another_subject_is_refused(subject: str) -> None:
    assert "`$.session`" in refusal(msgspec.msgpack.encode({"type": "seeded.v1", "session": subject}), Seeded)
    assert "`$.session`" in refusal(msgspec.msgpack.encode({"type": "seeded.v1", "session": f"{subject}\n"}), Seeded)


@pytest.mark.parametrize(
    "subject", ["gym.rollouts.r.1.2", "gym.parts.>", "gym.parts.*.x", "gym.parts.x y.z", "gym.parts"]
)
def test_a_claim_on_what_is_no_part_is_refused(subject: str) -> None:
    body = plain(next(example for example in EXAMPLES if isinstance(example, BlobRef))) | {"subject": subject}
    assert "`$.subject`" in refusal(msgspec.msgpack.encode(body), BlobRef)


def test_a_claim_on_a_million_parts_is_refused() -> None:
    body = plain(next(example for example in EXAMPLES if isinstance(example, BlobRef))) | {"parts": 1_000_000}
    assert "`$.parts`" in refusal(msgspec.msgpack.encode(body), BlobRef)


def test_a_compressed_body_that_states_an_excessive_size_is_refused_unread() -> None:
    """The frame states its size; nothing is decompressed."""
    frame = zstandard.ZstdCompressor().compress(b"\0" * (MAX_BODY_BYTES + 1))
    assert len(frame) < 100_000
    assert "excessive" in refusal(frame)


def test_a_compressed_body_larger_than_it_states_is_refused() -> None:
    bomb = bytearray(zstandard.ZstdCompressor(write_checksum=False).compress(b"\0" * (64 << 20)))
    assert zstandard.frame_content_size(bytes(bomb)) == 64 << 20
    assert bomb[4] >> 6 == 2  # the size has four bytes, at offset 5 because the frame is one segment
    bomb[5:9] = struct.pack("<I", 1000)
    assert "damaged" in refusal(bytes(bomb))


def test_a_compressed_body_of_unknown_size_is_refused() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"\0" * 1000)
    assert "unknown" in refusal(frame)


def test_a_compressed_compressed_body_is_refused() -> None:
    body = compressed(encode(Generated(response={"a": os.urandom(100_000).hex()})))
    refusal(zstandard.ZstdCompressor().compress(body))


def test_bytes_after_a_compressed_body_are_refused() -> None:
    body = compressed(encode(Generated(response={"a": "x" * 100_000})))
    refusal(body + b"x")
    refusal(body + body)


@given(st.data())
def test_a_damaged_compressed_body_is_refused_or_read(data: st.DataObject) -> None:
    body = bytearray(compressed(encode(Generated(response={"a": "abc" * 40_000}))))
    body[data.draw(st.integers(4, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    read(bytes(body))
