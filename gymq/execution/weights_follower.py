"""Load the newest weights that were pushed for a model worker."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from gymq.bus import Bus, BusError, Msg, blobs, streams
from gymq.bus.jetstream import Stored
from gymq.bus.repeating import repeat
from gymq.errors import UsageError
from gymq.model import Model, WeightsUpdate
from gymq.processes.background import end_task, is_set_within
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BadMessage
from gymq.protocol.replica_messages import Weights

log = logging.getLogger("gymq.weights")

READ_AGAIN_S = 5.0  # what was pushed is heard at once; this is for what was not heard

_decode = Decoder(Weights)


class WeightsFollower:
    """Loads the newest weights of one model before it serves, and each later push while it does."""

    def __init__(self, bus: Bus, model: Model) -> None:
        self._bus = bus
        self._js = bus.js
        self._model = model
        self._subject = subjects.WEIGHTS.of(model.name)
        self._pushed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._sequence = 0  # of the push that is loaded
        self._loaded = b""  # its record
        self._refused = 0  # of the push that the model could not load
        self._problem = ""

    def stats(self) -> dict[str, Any]:
        """Return the state that a push reads: its own sequence is loaded, or there is a problem with it."""
        return {
            "loaded": self._sequence,
            "refused": self._refused,
            "problem": self._problem,
            "is_announced": self._model.is_announced,
            "told": list(self._model.told_versions()),
        }

    async def start(self) -> None:
        """Load the newest weights, if any were pushed, and follow.

        Raises:
            UsageError: they cannot be loaded. The old ones must not be served in their place.
            BusError: it cannot be known whether there are any.
        """
        await self._bus.subscribe(subjects.PUSHED.of(self._model.name), self._on_push)
        await self._bus.flush()  # so that what is pushed after the first look is heard
        await self._catch_up()
        if self._problem:
            raise UsageError(self._problem)
        failed = f"{self._model.name}: cannot look for new weights"
        self._following = asyncio.create_task(repeat(self._catch_up_when_pushed, log, failed, pause_s=0.0))

    async def stop(self) -> None:
        await end_task(self._following)

    async def _on_push(self, _message: Msg) -> None:
        self._pushed.set()

    async def _catch_up_when_pushed(self) -> None:
        await is_set_within(self._pushed, READ_AGAIN_S)
        self._pushed.clear()
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Load the newest weights unless they are loaded, or known not to load."""
        while (stored := await self._js.last(streams.WEIGHTS, self._subject)) is not None:
            if stored.data == self._loaded:  # a later push was taken back
                self._sequence, self._problem = stored.sequence, ""
            if stored.sequence in (self._sequence, self._refused):
                return
            try:
                await self._load(stored)
            except (BadMessage, BusError) as error:
                newest = await self._js.last(streams.WEIGHTS, self._subject)
                if newest is not None and newest.sequence != stored.sequence:
                    continue  # these were removed after a later push
                self._fail(f"could not fetch its weights: {error}")
                return

    def _fail(self, problem: str) -> None:
        self._problem = f"{self._model.name} {problem}"
        log.error("%s", self._problem)

    async def _load(self, stored: Stored) -> None:
        weights: Weights = _decode(stored.data)
        body = None if weights.push is None else await self._fetch(weights)
        update = WeightsUpdate(weights.policy_version, weights.path, body, weights.mode, tuple(weights.engines))
        try:
            await self._model.load_weights(update)
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the worker stops; otherwise something that the model awaited was cancelled
            self._refused = stored.sequence
            self._fail(f"cannot load the weights {weights.policy_version!r}: {type(error).__name__}: {error}")
            return
        self._model.policy_version = weights.policy_version
        self._sequence, self._loaded, self._problem = stored.sequence, stored.data, ""
        log.info("%s now answers with the weights %r", self._model.name, weights.policy_version)

    async def _fetch(self, weights: Weights) -> bytes:
        """Fetch the bytes of a push.

        Raises:
            BadMessage: parts are missing or damaged.
        """
        assert weights.push is not None
        below = subjects.WEIGHTS_PART.begun(self._model.name, weights.push)
        return await blobs.join(
            self._js,
            streams.WEIGHTS,
            below,
            parts=weights.parts,
            num_bytes=weights.num_bytes,
            sha256=weights.sha256,
            timeout_s=30.0,
        )
