"""Answers kept in a folder, so that a repeated evaluation does not ask the endpoint again.

Used by openai_model, azure_openai_model, vllm_model and what builds on them.

One file an answer: all processes on all machines that see the folder share it, no process has to be up, and it can be
looked at and deleted with any tool. Files appear whole or not at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import tempfile
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import zstandard

import gymq
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.subjects import RolloutId
from gymq.protocol.tokens import encode_json

log = logging.getLogger("gymq.response_cache")

DEFAULT_FOLDER = Path(".gymq/responses")
MARK = "served_from_cache"  # field of a response from the cache

_FORMAT = 1  # part of every fingerprint: a change of what an entry means makes new entries
_MAX_SESSIONS = 65_536  # whose repeated requests are counted
_LOOK_EVERY = 256  # entries stored between two checks of the folder's size

Ask = Callable[[gymq.ModelRequest], Awaitable[dict[str, Any]]]


class _Entry(msgspec.Struct):
    session: str  # that the answer was given to
    response: dict[str, Any]


_encode = msgspec.msgpack.Encoder(enc_hook=encode_json).encode
_decode = msgspec.msgpack.Decoder(_Entry).decode
_fingerprint = msgspec.json.Encoder(enc_hook=encode_json, order="deterministic").encode


class ResponseCache:
    """The answers of one model instance."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, max_bytes: int) -> None:
        """
        Args:
            settings: everything else that an answer depends on; values with a JSON form.
            max_bytes: when the folder holds more, nothing is added to it.
        """
        self._folder = folder
        self._settings = settings
        self._max_bytes = max_bytes
        self._asked: OrderedDict[tuple[str, bytes], int] = OrderedDict()  # how often, by session and request
        self._stored = 0
        self._is_full = False
        self.hits = 0
        self.misses = 0

    async def start(self) -> None:
        """
        Raises:
            OptionsError: the folder cannot be made.
        """
        try:
            await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        except OSError as error:
            raise gymq.OptionsError(f"cache: {self._folder} cannot be made: {error.strerror}") from None
        await asyncio.to_thread(self._look)

    async def answer(self, request: gymq.ModelRequest, ask: Ask, *, policy_version: str = "") -> dict[str, Any]:
        """Return the answer that is stored, with `MARK`; else what `ask` gives, which is stored. A failure is not.

        Args:
            policy_version: of the weights that answer now.
        """
        wanted = self._wanted(request, policy_version)
        number = self._number(request.session, wanted)
        while True:
            file = self._file(wanted, number)
            entry = await asyncio.to_thread(_read, file)
            # The same session has asked this before, of another process: it wants another sample.
            if entry is None or entry.session != request.session:
                break
            number += 1
        if entry is not None:
            self.hits += 1
            return {**entry.response, MARK: True}
        self.misses += 1
        response = await ask(request)
        if not self._is_full:
            await asyncio.to_thread(self._store, file, _Entry(request.session, response))
        return response

    def _wanted(self, request: gymq.ModelRequest, policy_version: str) -> bytes:
        """Everything the answer depends on. The run's name is left out, or no other run would find it."""
        rollout = RolloutId.parse(request.rollout)
        # Row and repeat stay: 16 samples of a row are 16 answers.
        sample = "" if rollout is None else f"{rollout.task_index}/{rollout.rollout_index}"
        everything = [_FORMAT, self._settings, policy_version, sample, request.params]
        return hashlib.sha256(_fingerprint(everything)).digest()

    def _number(self, session: str, wanted: bytes) -> int:
        """Return how often the session has asked the same of this process before."""
        number = self._asked.pop((session, wanted), 0)
        self._asked[session, wanted] = number + 1
        if len(self._asked) > _MAX_SESSIONS:
            self._asked.popitem(last=False)
        return number

    def _file(self, wanted: bytes, number: int) -> Path:
        name = hashlib.sha256(wanted + number.to_bytes(8, "big")).hexdigest()
        return self._folder / name[:2] / f"{name[2:]}.zst"

    def _store(self, file: Path, entry: _Entry) -> None:
        try:
            data = zstandard.compress(_encode(entry))
            file.parent.mkdir(exist_ok=True)
            handle, unfinished = tempfile.mkstemp(dir=file.parent, suffix=".new")
            try:
                with os.fdopen(handle, "wb") as new:
                    new.write(data)
                os.replace(unfinished, file)
            except BaseException:
                Path(unfinished).unlink(missing_ok=True)
                raise
        except OSError as error:
            log.warning("an answer cannot be stored in %s: %s", self._folder, error.strerror)
            return
        self._stored += 1
        if self._stored % _LOOK_EVERY == 0:
            self._look()

    def _look(self) -> None:
        size = sum(_size(file) for file in self._folder.glob("*/*.zst"))
        self._is_full = size >= self._max_bytes
        if self._is_full:
            log.warning("%s holds %d bytes, the limit: nothing is added any more", self._folder, size)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # deleted meanwhile
        return 0


def _read(file: Path) -> _Entry | None:
    try:
        return _decode(zstandard.ZstdDecompressor().decompress(file.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, zstandard.ZstdError, *UNDECODABLE) as error:
        log.warning("%s cannot be read, and is asked for again: %s", file, error)
        return None
