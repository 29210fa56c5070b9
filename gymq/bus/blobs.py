"""Blobs: bodies larger than the server allows, stored in parts, with a `BlobRef` sent in their place.

A sender passes what is stored through `fit`, and a large request or reply through `store_call`; a receiver decodes with
`read`, or with `follow` where it has a reference already.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Any, Literal

from gymq.bus import streams
from gymq.bus.bus import Bus
from gymq.bus.jetstream import JetStream
from gymq.protocol import subjects
from gymq.protocol.codec import compressed, encode
from gymq.protocol.messages import BadMessage, BlobRef, Call
from gymq.protocol.subjects import RolloutId

CALL_TTL_S = 3600
PATIENCE_S = 60.0

_PARTS = {"task": subjects.TASK_PART.begun, "rollout": subjects.ROLLOUT_PART.begun}


async def fit(bus: Bus, body: bytes, kind: Literal["task", "rollout"], of: RolloutId, *, label: str = "") -> bytes:
    """Return what is stored for a body: itself, compressed if it is large, or the reference of a blob with that."""
    body = compressed(body)
    return body if len(body) <= bus.max_body_bytes else await store(bus, body, kind, of, label=label)


async def store(bus: Bus, body: bytes, kind: Literal["task", "rollout"], of: RolloutId, *, label: str = "") -> bytes:
    """Store the blob of a task or of a rollout and return its encoded reference. Safe to repeat.

    It lives as long as the run.

    Args:
        label: what it is, if not the task or the outcome itself.
    """
    sha256 = hashlib.sha256(body).hexdigest()
    subject = _PARTS[kind](*of, f"{label}-{sha256[:32]}" if label else sha256[:32])
    return await _store(bus, body, subject, sha256, {}, PATIENCE_S)


async def store_call(
    bus: Bus, body: bytes, role: str, *, request: Call | None = None, patience_s: float = PATIENCE_S
) -> bytes:
    """Store the blob of a request or a reply for one hour and return its encoded reference.

    Args:
        role: of the receiver; no other role may read it.
        request: what the body is, if it is a request.
        patience_s: seconds to wait for each part to be stored.

    Raises:
        BadMessage: the role cannot be part of a subject.
    """
    try:
        subject = subjects.CALL_PART.begun(role, secrets.token_hex(12))
    except subjects.BadToken as error:
        raise BadMessage(str(error)) from None
    headers = {"Nats-TTL": f"{CALL_TTL_S}s"}
    return await _store(bus, body, subject, hashlib.sha256(body).hexdigest(), headers, patience_s, request)


async def _store(
    bus: Bus,
    body: bytes,
    subject: str,
    sha256: str,
    headers: dict[str, str],
    patience_s: float,
    request: Call | None = None,
) -> bytes:
    js = bus.js
    size = bus.max_body_bytes
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    # One message a subject makes a repeated write replace its own earlier copy.
    for number, part in enumerate(parts):
        await js.publish_with_retry(f"{subject}.{number}", part, headers, patience_s=patience_s)
    ref = BlobRef(subject=subject, parts=len(parts), num_bytes=len(body), sha256=sha256)
    if request is not None:
        ref.rollout, ref.priority, ref.share = request.rollout, request.priority, request.share
    return encode(ref)


async def read(bus: Bus, body: bytes, decode: Callable[[bytes], Any], *kinds: str) -> Any:
    """Decode a stored body; where it holds a reference, the message in its blob.

    Args:
        decode: decodes the expected messages and `BlobRef`.
        kinds: see `fetch`.

    Raises:
        BadMessage: the body or the blob is not valid.
    """
    message = decode(body)
    return await follow(bus, message, decode, *kinds) if isinstance(message, BlobRef) else message


async def follow(bus: Bus, ref: BlobRef, decode: Callable[[bytes], Any], *kinds: str) -> Any:
    """Decode the message in the blob of a reference; arguments and errors are those of `read`."""
    message = decode(await fetch(bus, ref, *kinds))
    if isinstance(message, BlobRef):
        raise BadMessage("a blob holds only the reference of another one")
    return message


async def fetch(bus: Bus, ref: BlobRef, *kinds: str) -> bytes:
    """Return the body in the blob of a reference.

    Args:
        kinds: the kinds that the blob may be of (task, rollout or call); others are not even requested.

    Raises:
        BadMessage: the blob is missing, damaged or of another kind.
    """
    if ref.subject.split(".")[2] not in kinds:
        raise BadMessage(f"a reference of a blob of another kind: {ref.subject}")
    js = bus.js
    return await join(js, streams.PARTS, ref.subject, parts=ref.parts, num_bytes=ref.num_bytes, sha256=ref.sha256)


async def join(
    js: JetStream, stream: str, subject: str, *, parts: int, num_bytes: int, sha256: str | None, timeout_s: float = 5.0
) -> bytes:
    """Return the body of the messages `<subject>.<n>` in a stream.

    Raises:
        BadMessage: parts are missing or damaged.
    """
    digest = hashlib.sha256()
    body = bytearray()
    for number in range(parts):
        part = await js.last_beyond(0, stream, f"{subject}.{number}", timeout_s=timeout_s)
        if part is None:
            raise BadMessage(f"part {number} of {parts} at {subject} is missing")
        digest.update(part.data)
        body += part.data
        if len(body) > num_bytes:
            break
    if len(body) != num_bytes or digest.hexdigest() != sha256:
        raise BadMessage(f"the parts at {subject} are not those that were stored")
    return bytes(body)
