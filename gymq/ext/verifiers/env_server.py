"""An environment server for prime-rl: requests in the protocol of verifiers become rollouts in the queue.

The protocol is that of verifiers 0.4.0, https://github.com/PrimeIntellect-ai/verifiers, `verifiers/v1/serve`: requests
and answers are frames of ZeroMQ with a body of msgpack. It has no passwords, so the address must be one that only
trusted programs reach.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging
import secrets
import time
from typing import Any, NamedTuple, Self

import msgspec

from gymq.data.rows import TASK_INDEX
from gymq.errors import GymqError, UsageError
from gymq.ext.verifiers.episodes import CancelRequest, RunRequest, episode, failed_episode, row_of
from gymq.ext.verifiers.traces import task_of
from gymq.processes.background import RunningTasks
from gymq.redaction import redact
from gymq.trainer.batch import Batch
from gymq.trainer.groups import Row
from gymq.trainer.options import OnUntrainable
from gymq.trainer.run import TrainingRun

log = logging.getLogger("gymq.trainer")

MOST_IN_FLIGHT = 16384  # rollouts of all callers together
MAX_FRAME_BYTES = 64 * 2**20  # of a request; ZeroMQ ends the connection that sends more

_encode = msgspec.msgpack.Encoder().encode


class _Caller(NamedTuple):
    connection: bytes
    request_id: bytes


class EnvServer:
    """A server on one socket. Use it with `async with`.

    Attributes:
        address: that clients connect to.
    """

    def __init__(self, training: TrainingRun, address: str) -> None:
        """Listen at an address; nothing is answered yet.

        Args:
            training: run that the rollouts are stored under.
            address: as ZeroMQ writes it, such as `tcp://127.0.0.1:5000`; port 0 is any free one.

        Raises:
            UsageError: pyzmq is not installed, or the address cannot be listened at.
        """
        try:
            zmq: Any = importlib.import_module("zmq")
            importlib.import_module("zmq.asyncio")
        except ModuleNotFoundError:
            raise UsageError("pyzmq is not installed here: pip install 'gymq[prime-rl]'") from None
        self._training = training
        self._in_flight: dict[_Caller, Batch] = {}
        self._cancelled: set[_Caller] = set()
        self._answering = RunningTasks()
        self._indices = itertools.count(secrets.randbits(52))
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
            (zmq.SNDHWM, 65536),  # further answers are dropped, so that a caller that does not read costs itself
            (zmq.LINGER, 1000),
            (zmq.IPV6, "[" in address),
        ):
            self._socket.setsockopt(option, value)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._context.destroy(0)
            raise UsageError(f"cannot listen at {address}: {error}") from None
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel what is in flight, and inform those who wait for it."""
        self._serving.cancel()
        for caller in list(self._in_flight):
            self._cancel(caller)
        if self._answering:
            await asyncio.wait(self._answering, timeout=10.0)
        self._context.destroy()

    async def wait(self) -> None:
        """Wait for the server's end, which only an error brings.

        Raises:
            ZMQError: of the library, from the socket.
        """
        await asyncio.shield(self._serving)

    async def _serve(self) -> None:
        while True:
            frames = await self._socket.recv_multipart()
            if len(frames) != 4:
                log.warning("dropped a message of %d frames: a request has 4", len(frames))
                continue
            connection, request_id, method, body = frames
            caller = _Caller(connection, request_id)
            try:
                answer = self._begin(caller, method, body)
            except Exception as error:  # whatever a body makes go wrong costs its request only
                answer = _refusal(error)
            if answer is not None:
                await self._send(caller, b"reply", answer)

    def _begin(self, caller: _Caller, method: bytes, body: bytes) -> Row | None:
        """Answer a request, or begin its rollout, which is answered later.

        Raises:
            Exception: it cannot be used.
        """
        if method == b"health":
            return {"success": True, "error": None}
        if method == b"cancel":
            request_id = msgspec.msgpack.decode(body, type=CancelRequest).request_id.encode()
            return {"success": True, "error": None, "cancelled": self._cancel(_Caller(caller.connection, request_id))}
        if method != b"run":
            raise UsageError(f"unknown method {method[:40]!r}; there are health, run and cancel")
        if caller in self._in_flight:
            raise UsageError("a request with this id is in flight")
        if len(self._in_flight) >= MOST_IN_FLIGHT:
            raise UsageError(f"{MOST_IN_FLIGHT} rollouts are in flight; repeat the request later")
        request = msgspec.msgpack.decode(body, type=RunRequest)
        task = task_of(request.task_data)
        on_untrainable: OnUntrainable = "error" if request.client.type == "train" else "allow"
        row = row_of(request) | {TASK_INDEX: next(self._indices)}
        batch = self._training.run_rollouts([row], on_untrainable=on_untrainable)
        self._in_flight[caller] = batch
        self._answering.start(self._answer(caller, batch, request, task))
        return None

    def _cancel(self, caller: _Caller) -> bool:
        """Cancel a rollout; return whether it was in flight."""
        batch = self._in_flight.get(caller)
        if batch is not None:
            self._cancelled.add(caller)
            batch.cut()
        return batch is not None

    async def _answer(self, caller: _Caller, batch: Batch, request: RunRequest, task: Row) -> None:
        """Send a rollout when it is done: its trace, and the episode."""
        submitted_at = time.time()
        traces: list[Row] = []
        try:
            (group,) = [group async for group in batch]
            if group.samples:
                agent = {"model": request.model, "sampling": request.sampling}
                head, delta = episode(task, group.samples[0], agent, submitted_at, time.time())
                await self._send(caller, b"delta", delta)
                traces = [{"id": delta["trace"], "nodes": len(delta["nodes"]), "calls": len(delta["calls"])}]
            elif caller in self._cancelled:
                raise UsageError("cancelled")
            else:
                head = failed_episode(task, group)
            answer = {"success": True, "error": None, "head": head, "traces": traces}
        except GymqError as error:
            answer = _refusal(error)
        except Exception as error:  # a caller without an answer would wait forever
            log.exception("a rollout could not be answered")
            answer = _refusal(error)
        finally:
            del self._in_flight[caller]
            self._cancelled.discard(caller)
        await self._send(caller, b"reply", answer)

    async def _send(self, caller: _Caller, kind: bytes, message: Row) -> None:
        await self._socket.send_multipart([*caller, kind, _encode(message)], copy=False)


def _refusal(error: Exception) -> Row:
    return {"success": False, "error": redact(str(error) or type(error).__name__)}
