"""Keys of requests: requests with the same key mean the same rollout."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import msgspec

from gymq.data.rows import ATTEMPT_INDEX, MAX_INDEX, digest_of
from gymq.ext.http.errors import invalid

HEADER = "Idempotency-Key"
ROLLOUT_ID = "_ng_rollout_id"

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def key_of(headers: Mapping[str, str], row: Mapping[str, msgspec.Raw], agent: str) -> str | None:
    """Return the key of a request: that of its header, or of the row's own rollout id and attempt.

    Rows with the same ids have the same key only if all their fields are equal: other data may use the same ids.

    Args:
        agent: instance that the row is for, which the row need not name.

    Raises:
        StatusError: 422; the header is not a valid key.
    """
    given = headers.get(HEADER)
    if given is not None:
        if not _KEY.fullmatch(given):
            raise invalid(f"{HEADER} must be 1 to 255 visible ASCII characters")
        return f"header {given}"
    if ROLLOUT_ID not in row or ATTEMPT_INDEX not in row:
        return None
    return f"row {agent} {digest_of(row)}"


def indices_of(key: str) -> tuple[int, int]:
    """Return the task and rollout index of a key: 106 bits of its SHA-256, so that no two keys collide."""
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "big")
    return number % MAX_INDEX, number // MAX_INDEX % MAX_INDEX
