"""Keeps a model worker on the newest weights that were pushed for its instance."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from typing import Any

from nats.aio.msg import Msg

from gymq import streams, subjects
from gymq.bus import Bus, BusError
from gymq.jetstream import JetStream, Stored
from gymq.messages import BadMessage, Weights, decoder
from gymq.model import Model, WeightsUpdate

log = logging.getLogger("gymq.weights")

READ_AGAIN_S = 5.0  # what was pushed is heard at once; this is for what was not heard

_decode = decoder(Weights)


class WeightsFailed(Exception):
    """Weights that a model could not load; one sentence."""


class WeightsKeeper:
    """Loads the newest weights of one model before it serves, and each later push while it does."""

    def __init__(self, bus: Bus, model: Model) -> None:
        self._bus = bus
        self._js = JetStream(bus)
        self._model = model
        self._subject = subjects.weights(model.name)
        self._pushed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._sequence = 0  # of the push that is loaded
        self._loaded = b""  # its record
        self._refused = 0  # of the push that the model could not load
        self._problem = ""

    def stats(self) -> dict[str, Any]:
        """What a push looks at: its own sequence is loaded, or there is a problem with it."""
        return {"loaded": self._sequence, "refused": self._refused, "problem": self._problem}

    async def start(self) -> None:
        """Load the newest weights, if any were pushed, and follow.

        Raises:
            WeightsFailed: they cannot be loaded. The old ones must not be served in their place.
            BusError: it cannot be known whether there are any.
        """
        await self._bus.subscribe(subjects.pushed(self._model.name), self._on_push)
        await self._bus.flush()  # so that what is pushed after the first look is heard
        await self._catch_up()
        if self._problem:
            raise WeightsFailed(self._problem)
        self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _on_push(self, _message: Msg) -> None:
        self._pushed.set()

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(READ_AGAIN_S):
                    await self._pushed.wait()
            self._pushed.clear()
            try:
                await self._catch_up()
            except BusError as error:
                log.warning("%s: cannot look for new weights: %s", self._model.name, error)

    async def _catch_up(self) -> None:
        """Load the newest weights unless they are loaded, or known not to load."""
        while (stored := await self._js.last(streams.WEIGHTS, self._subject)) is not None:
            if stored.data == self._loaded:  # a later push was taken back
                self._sequence, self._problem = stored.sequence, ""
            if stored.sequence in (self._sequence, self._refused):
                return
            try:
                await self._load(stored)
            except WeightsFailed as error:
                self._problem = str(error)
                log.error("%s", self._problem)
            except (BadMessage, BusError) as error:
                newest = await self._js.last(streams.WEIGHTS, self._subject)
                if newest is not None and newest.sequence != stored.sequence:
                    continue  # these were removed after a later push
                self._problem = f"{self._model.name} could not fetch its weights: {error}"
                log.error("%s", self._problem)
                return

    async def _load(self, stored: Stored) -> None:
        weights: Weights = _decode(stored.data)
        body = None if weights.push is None else await self._fetch(weights)
        update = WeightsUpdate(weights.policy_version, weights.path, body, weights.mode)
        try:
            await self._model.load_weights(update)
        except Exception as error:
            self._refused = stored.sequence
            text = f"{self._model.name} cannot load the weights {weights.policy_version!r}"
            raise WeightsFailed(f"{text}: {type(error).__name__}: {error}") from error
        self._model.policy_version = weights.policy_version
        self._sequence, self._loaded, self._problem = stored.sequence, stored.data, ""
        log.info("%s answers with the weights %r from now on", self._model.name, weights.policy_version)

    async def _fetch(self, weights: Weights) -> bytes:
        """The bytes of a push.

        Raises:
            BadMessage: parts are missing or damaged.
            BusError
        """
        assert weights.push is not None
        below = subjects.weights_parts(self._model.name, weights.push)
        digest = hashlib.sha256()
        body = bytearray()
        for number in range(weights.parts):
            part = await self._js.last(streams.WEIGHTS, f"{below}.{number}", timeout_s=30.0)
            if part is None:
                raise BadMessage(f"part {number} of {weights.parts} is missing")
            digest.update(part.data)
            body += part.data
        if len(body) != weights.num_bytes or digest.hexdigest() != weights.sha256:
            raise BadMessage("the parts are not those that were pushed")
        return bytes(body)
