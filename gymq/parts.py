"""Bodies larger than the server allows: cut into parts in the stream PARTS, with a `Claim` sent in their place."""

from __future__ import annotations

import asyncio
import hashlib
import secrets

from gymq import subjects
from gymq.bus import Bus, BusError
from gymq.jetstream import JetStream
from gymq.messages import BadMessage, Claim, encode

STREAM = "PARTS"
MAX_BYTES = 512 << 20
CALL_PARTS_TTL = "1h"


async def put(bus: Bus, body: bytes, subject: str, *, ttl: str | None = None) -> bytes:
    """Store `body` below `subject` and give the encoded claim on it.

    Args:
        ttl: how long the parts live, in the server's notation; None: until they are removed.

    Raises:
        BusError: not stored.
    """
    if len(body) > MAX_BYTES:
        raise BusError(f"a body of {len(body)} bytes exceeds the limit of {MAX_BYTES}")
    size = bus.max_body_bytes
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    js = JetStream(bus)
    headers = {"Nats-TTL": ttl} if ttl else {}
    # One message a subject makes a repeated write replace its own earlier copy.
    for number, piece in enumerate(pieces):
        await js.store_surely(f"{subject}.{number}", piece, headers, patience_s=60.0)
    return encode(Claim(subject=subject, parts=len(pieces), num_bytes=len(body), sha256=digest(body)))


async def put_for_call(bus: Bus, body: bytes) -> bytes:
    """`put` for a request or a reply, which nobody needs after an hour."""
    return await put(bus, body, subjects.call_parts(secrets.token_hex(12)), ttl=CALL_PARTS_TTL)


async def get(bus: Bus, claim: Claim) -> bytes:
    """The body a claim stands for.

    Raises:
        BadMessage: parts are missing or damaged.
        BusError: the stream cannot be read.
    """
    if claim.num_bytes > MAX_BYTES or not claim.subject.startswith("gym.parts."):
        raise BadMessage("claim on a body that cannot be one of ours")
    js = JetStream(bus)
    found = await asyncio.gather(*(js.last(STREAM, f"{claim.subject}.{number}") for number in range(claim.parts)))
    body = b"".join(part.data for part in found if part is not None)
    if len(body) != claim.num_bytes or digest(body) != claim.sha256:
        raise BadMessage(f"the parts at {claim.subject} are missing or damaged")
    return body


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
