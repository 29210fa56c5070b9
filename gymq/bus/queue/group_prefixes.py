"""What the rollouts of a task share, its prompt above all: stored once for the group.

The first rollout of a group that ends stores the prefix, create-only: its row, its envelope and the tokens of its first
prompt. Each outcome is then compressed after it, so whatever recurs costs next to nothing. The rows of a group differ
in their numbers, so that equal parts are found by the compression rather than by comparing fields.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from functools import lru_cache, partial
from typing import NamedTuple

import zstandard

from gymq.bus import Bus, BusError, streams
from gymq.protocol import subjects
from gymq.protocol.codec import decompressed, encode
from gymq.protocol.messages import BadMessage, GroupedOutcome, Outcome, Unresolved, VerifiedRollout
from gymq.protocol.tokens import PROMPT_FIELD, tokens_of
from gymq.redaction import without_credentials

log = logging.getLogger("gymq.outcomes")

SHARED_ABOVE_BYTES = 16 * 1024  # of a prefix: a smaller one is not worth looking for
MOST_BYTES = 1024 * 1024
KEPT_BYTES = 16 * 1024 * 1024  # of prefixes in one process
PATIENCE_S = 5.0

NUM_COMPRESSORS = 8  # kept; each has a megabyte, and to make one takes five times as long as to use it

# The table of hashes that level 1 has by itself finds little of a prefix of some hundred kilobytes.
_PARAMETERS = zstandard.ZstdCompressionParameters.from_level(1, window_log=21, hash_log=16, write_checksum=True)
_compressor = zstandard.ZstdCompressor(level=3)


class _Prefix(NamedTuple):
    stored: bytes
    num_bytes: int
    sha256: str
    dictionary: zstandard.ZstdCompressionDict


class GroupPrefixes:
    """The prefixes of groups, stored and read over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = bus.js
        self._kept: OrderedDict[str, _Prefix] = OrderedDict()  # by subject, the one used last at the end
        self._num_bytes = 0
        self._compressor_after = lru_cache(NUM_COMPRESSORS)(_compressor_after)

    async def grouped(self, outcome: Outcome, body: bytes) -> bytes | None:
        """Return the body of an outcome as it is stored beside the prefix of its group.

        Returns:
            None if the outcome is stored whole: it has no group, or one with a short prefix, or the prefix can now be
            neither read nor stored.
        """
        if not isinstance(outcome, VerifiedRollout | Unresolved) or (outcome.num_rollouts or 1) < 2:
            return None
        position = _first_with_tokens(outcome)
        if not SHARED_ABOVE_BYTES < _estimated_bytes(outcome, position) <= MOST_BYTES:
            return None
        subject = subjects.group_prefix(outcome.run, outcome.task_index)
        try:
            prefix = await self._stored(subject) or await self._store(subject, _prefix_of(outcome, position))
        except (BusError, BadMessage) as error:
            log.info("%s: %s; the outcome is stored whole", subject, error)
            return None
        grouped = GroupedOutcome(
            run=outcome.run,
            task_index=outcome.task_index,
            prefix_sha256=prefix.sha256,
            frame=self._compressor_after(prefix.dictionary).compress(body),
        )
        return encode(grouped)

    async def whole(self, grouped: GroupedOutcome) -> bytes:
        """Return the body of an outcome that is stored beside the prefix of its group.

        Raises:
            BadMessage: the prefix is missing, or another one; the frame is damaged.
            BusError: the prefix cannot be read.
        """
        subject = subjects.group_prefix(grouped.run, grouped.task_index)
        prefix = self._kept.get(subject)
        if prefix is None or prefix.sha256 != grouped.prefix_sha256:
            prefix = await self._stored(subject, is_known=True)
        if prefix is None:
            raise BadMessage(f"the prefix of its group at {subject} is missing")
        if prefix.sha256 != grouped.prefix_sha256:
            raise BadMessage(f"the prefix of its group at {subject} is not the one that it was compressed after")
        return decompressed(grouped.frame, zstandard.ZstdDecompressor(dict_data=prefix.dictionary))

    async def _store(self, subject: str, prefix: bytes) -> _Prefix:
        """Store a prefix unless there is one; return the one that is stored."""
        await self._js.publish_if_last(subject, _compressor.compress(prefix), last=0, patience_s=PATIENCE_S)
        stored = await self._stored(subject, is_known=True)
        if stored is None:
            raise BadMessage("it was removed")
        return stored

    async def _stored(self, subject: str, *, is_known: bool = False) -> _Prefix | None:
        """Return the prefix that is stored now: a run may have been deleted, and made again under its name."""
        look = partial(self._js.last_beyond, 0) if is_known else self._js.last
        message = await look(streams.PARTS, subject, timeout_s=PATIENCE_S)
        if message is None:
            return None
        kept = self._kept.get(subject)
        if kept is None or kept.stored != message.data:
            kept = _read(message.data)
            self._keep(subject, kept)
        self._kept.move_to_end(subject)
        return kept

    def _keep(self, subject: str, prefix: _Prefix) -> None:
        before = self._kept.pop(subject, None)
        self._num_bytes += prefix.num_bytes - (before.num_bytes if before else 0)
        self._kept[subject] = prefix
        while self._num_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._num_bytes -= self._kept.popitem(last=False)[1].num_bytes


def _read(stored: bytes) -> _Prefix:
    prefix = decompressed(stored, most_bytes=MOST_BYTES)
    dictionary = zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return _Prefix(stored, len(stored) + len(prefix), hashlib.sha256(prefix).hexdigest(), dictionary)


def _compressor_after(dictionary: zstandard.ZstdCompressionDict) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(dict_data=dictionary, compression_params=_PARAMETERS)


def _prefix_of(outcome: VerifiedRollout | Unresolved, position: int | None) -> bytes:
    """Return the row, envelope and first prompt of an outcome, encoded as they are in it."""
    items = [] if position is None else [{PROMPT_FIELD: outcome.response["output"][position][PROMPT_FIELD]}]
    response = {**outcome.response, "output": items}
    run, task_index, rollout_index = outcome.rollout_id
    beginning = VerifiedRollout(
        run=run,
        task_index=task_index,
        rollout_index=rollout_index,
        agent=outcome.agent,
        row=outcome.row,
        response=response,
        reward=0.0,
    )
    prefix = without_credentials(encode(beginning))
    if len(prefix) > MOST_BYTES:
        raise BadMessage(f"a prefix of {len(prefix)} bytes")
    return prefix


def _first_with_tokens(outcome: VerifiedRollout | Unresolved) -> int | None:
    output = outcome.response.get("output")
    if not isinstance(output, list):
        return None
    return next((position for position, item in enumerate(output) if tokens_of(item) is not None), None)


def _estimated_bytes(outcome: VerifiedRollout | Unresolved, position: int | None) -> int:
    prompt = () if position is None else outcome.response["output"][position][PROMPT_FIELD]
    return len(outcome.row) + 4 * len(prompt)
