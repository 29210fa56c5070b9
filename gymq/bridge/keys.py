"""Which rollout a request is for: requests with the same key mean the same one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import msgspec

from gymq.bridge.failures import invalid
from gymq.rows import ATTEMPT_INDEX, MAX_INDEX

HEADER = "Idempotency-Key"
ROLLOUT_ID = "_ng_rollout_id"

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_ROW_NUMBER = "_rowidx"  # the place in the caller's list, which differs from call to call


def key_of(headers: Mapping[str, str], row: Mapping[str, msgspec.Raw], agent: str) -> str | None:
    """The key of a request: that of its header, or of the row's own rollout id and attempt.

    A row with ids is the same one only if all of it is: other data may use the same ids.

    Args:
        agent: instance that the row is for, which the row need not name.

    Raises:
        BridgeError: 422; the header cannot be a key.
    """
    given = headers.get(HEADER)
    if given is not None:
        if not _KEY.fullmatch(given):
            raise invalid(f"{HEADER} must be 1 to 255 visible ASCII characters")
        return f"header {given}"
    if ROLLOUT_ID not in row or ATTEMPT_INDEX not in row:
        return None
    return f"row {agent} {digest_of(row)}"


def digest_of(row: Mapping[str, msgspec.Raw]) -> str:
    """Tells rows apart, whatever their place in a call and the order of their members."""
    members = {name: value for name, value in row.items() if name != _ROW_NUMBER}
    return hashlib.sha256(msgspec.json.encode(members, order="sorted")).hexdigest()


def indices_of(key: str) -> tuple[int, int]:
    """Task and rollout index of a key: 106 bits of its SHA-256, so that no two keys meet."""
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "big")
    return number % MAX_INDEX, number // MAX_INDEX % MAX_INDEX
