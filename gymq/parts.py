"""Bodies larger than the server allows: cut into parts in the stream PARTS, with a `Claim` sent in their place."""

from __future__ import annotations

import hashlib
import secrets

from gymq import subjects
from gymq.bus import Bus
from gymq.jetstream import JetStream
from gymq.messages import BadMessage, Claim, encode

STREAM = "PARTS"
CALL_PARTS_TTL = "1h"
PATIENCE_S = 60.0


async def put(bus: Bus, body: bytes, subject: str, *, ttl: str | None = None, patience_s: float = PATIENCE_S) -> bytes:
    """Store `body` below `subject` and give the encoded claim on it.

    Args:
        ttl: how long the parts live, in the server's notation; None: until they are removed.
        patience_s: seconds to wait for each part to be stored.

    Raises:
        BusError: not stored.
    """
    size = bus.max_body_bytes
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    js = JetStream(bus)
    headers = {"Nats-TTL": ttl} if ttl else {}
    # One message a subject makes a repeated write replace its own earlier copy.
    for number, piece in enumerate(pieces):
        await js.store_surely(f"{subject}.{number}", piece, headers, patience_s=patience_s)
    return encode(Claim(subject=subject, parts=len(pieces), num_bytes=len(body), sha256=digest(body)))


async def put_for_call(bus: Bus, body: bytes, *, patience_s: float = PATIENCE_S) -> bytes:
    """`put` for a request or a reply, which nobody needs after an hour."""
    subject = subjects.call_parts(secrets.token_hex(12))
    return await put(bus, body, subject, ttl=CALL_PARTS_TTL, patience_s=patience_s)


async def get(bus: Bus, claim: Claim, *kinds: str) -> bytes:
    """Return the body that a claim stands for.

    Args:
        kinds: of parts that it may be made of: task, rollout or call. What anybody else wrote is not even asked for.

    Raises:
        BadMessage: parts are missing or damaged.
        BusError: the stream cannot be read.
    """
    if claim.subject.split(".")[2] not in kinds:
        raise BadMessage(f"a claim on parts of another kind: {claim.subject}")
    js = JetStream(bus)
    body = bytearray()
    for number in range(claim.parts):
        part = await js.last(STREAM, f"{claim.subject}.{number}")
        if part is None:
            raise BadMessage(f"part {number} of {claim.parts} at {claim.subject} is missing")
        body += part.data
        if len(body) > claim.num_bytes:
            break
    if len(body) != claim.num_bytes or digest(body) != claim.sha256:
        raise BadMessage(f"the parts at {claim.subject} are not those that were claimed")
    return bytes(body)


def digest(body: bytes | bytearray) -> str:
    return hashlib.sha256(body).hexdigest()
