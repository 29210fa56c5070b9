"""New weights for all replicas of a model: stored, loaded by each, confirmed.

The bytes, or the path of a folder that all replicas can read, become the newest weights of the instance in the stream
WEIGHTS. Replicas that run load them now, those that start later before they serve. Weights that are announced are in
the engines already, and replicas only record their version.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import io
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gymq.bus import Bus, BusError, NoAnswer, NoResponders, streams
from gymq.bus.discovery import WorkerSearch, find_workers, is_running, not_running, reported
from gymq.bus.jetstream import JetStream, JetStreamError, Stored
from gymq.bus.weights.holding import LOOK_S, held, until_finished
from gymq.defaults import CONFIRM_S, MAX_VERSIONS, InFlight, WeightsMode
from gymq.errors import UsageError
from gymq.processes.failing import OnFailureAwait
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import BadMessage, Ping
from gymq.protocol.replica_messages import Hold, Weights

STORE_PATIENCE_S = 60.0  # for each part, while the server is away or full

_decode = Decoder(Weights)


class LoadState(msgspec.Struct):
    """The state of its weights that a replica reports."""

    loaded: int
    refused: int
    problem: str
    is_announced: bool = False  # it does not load them: see `gymq.Model`
    told: list[str] = []  # versions that its engines name


@dataclass
class Pushed:
    """The result of a push: the ids of the replicas that loaded it, and why others did not."""

    policy_version: str
    confirmed: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    taken_back: bool = False  # no replica could load them, so the weights before stay the newest

    @property
    def is_complete(self) -> bool:
        return not self.missing


async def push(
    bus: Bus,
    model: str,
    policy_version: str,
    *,
    path: str | Path | None = None,
    weights: bytes | Path | None = None,
    mode: WeightsMode = "keep",
    in_flight: InFlight = "continue",
    deadline_s: float = CONFIRM_S,
    known: Collection[str] = (),
) -> Pushed:
    """Give all replicas of a model new weights; returns when each live one has loaded them or reported why not.

    Args:
        bus: connected as the role trainer or operator.
        path: folder or file that every replica finds under this path, or
        weights: a file in the safetensors format, or its bytes; they travel over NATS.
        mode: what becomes of requests that run, see `gymq.WeightsUpdate`.
        in_flight: what becomes of rollouts that run: they `continue` with the new weights, `restart`, or `finish`
            under the old ones, for which the update waits.
        deadline_s: seconds for the replicas to load them. After that those that have not are reported as missing; they
            keep trying. With `finish`, also the seconds for rollouts to finish, after which they start over.
        known: ids of replicas, as the push before returned them; without any, 0.3 s are spent looking for them. Others
            are waited for as well if they answer before all of these have loaded the weights.

    Raises:
        UsageError: nothing was pushed.
        BusError: NATS was away; it is unknown whether it was.
    """
    if (path is None) == (weights is None):
        raise UsageError("give either a path or weights")
    record = Weights(policy_version=_checked(policy_version), mode=mode, in_flight=in_flight)
    if path is not None:
        record.path = str(path)
    return await _update(bus, model, record, weights, deadline_s, known)


async def announce(
    bus: Bus,
    model: str,
    policy_version: str,
    *,
    engines: Sequence[str] = (),
    in_flight: InFlight = "continue",
    deadline_s: float = CONFIRM_S,
    known: Collection[str] = (),
) -> Pushed:
    """Tell all replicas of a model that the engines they ask have new weights; returns when each answers with them.

    The other arguments are those of `push`.

    Args:
        engines: URLs of the engines that answer from now on; empty: the same as before.

    Raises:
        UsageError: nothing was announced.
        BusError: NATS was away; it is unknown whether it was.
    """
    record = Weights(policy_version=_checked(policy_version), in_flight=in_flight, engines=list(engines))
    return await _update(bus, model, record, None, deadline_s, known)


def _checked(policy_version: str) -> str:
    if not 0 < len(policy_version) <= 200 or not policy_version.isprintable():
        raise UsageError("policy_version must have 1 to 200 printable characters")
    return policy_version


async def _update(
    bus: Bus,
    model: str,
    record: Weights,
    weights: bytes | Path | None,
    deadline_s: float,
    known: Collection[str],
) -> Pushed:
    try:
        subjects.instance(model, "model")
    except subjects.BadToken as error:
        raise UsageError(str(error)) from None
    js = bus.js
    try:
        last = functools.partial(js.last, streams.WEIGHTS, subjects.WEIGHTS.of(model))
        replaced = await bus.retry_read(last, patience_s=STORE_PATIENCE_S)
        before = None if replaced is None else _decode(replaced.data)
    except BadMessage as error:
        raise UsageError(f"the stored newest weights of {model} cannot be read: {error}") from None
    replicas = set(known) or await _replicas(bus, model, was_pushed_before=before is not None)
    record = _after(record, before)
    name = secrets.token_hex(12)
    oldest = 0

    async def remove_own_parts() -> None:
        if weights is not None:
            with contextlib.suppress(BusError):
                await _remove_parts(js, f"{subjects.WEIGHTS_PART.begun(model, name)}.*")

    async with contextlib.AsyncExitStack() as stack:
        async with OnFailureAwait(remove_own_parts):
            if weights is not None:
                with _opened(weights) as file:
                    record, oldest = await _store_parts(bus, model, name, record, file)
            if record.in_flight != "continue":
                await stack.enter_async_context(held(bus, model))
            if record.in_flight == "finish":
                await until_finished(bus, model, deadline_s)
        try:
            sequence = await _store_record(js, model, record, 0 if replaced is None else replaced.sequence)
        except (UsageError, JetStreamError):
            await remove_own_parts()  # after another failure, the record may be stored, and replicas look for its parts
            raise
        search = stack.enter_context(WorkerSearch(bus, model))
        pushed = await _confirmed(bus, search, record.policy_version, sequence, replicas, deadline_s)
        if pushed.taken_back:
            await _take_back(bus, model, record, replaced, sequence)
    if not pushed.taken_back:
        # What came before is not needed; a replica that is still fetching it finds that there is something newer.
        await _remove_parts(js, subjects.WEIGHTS_PART.of(model), before=oldest or sequence)
    return pushed


def _after(record: Weights, before: Weights | None) -> Weights:
    record = msgspec.structs.replace(record, before=_before(before, record.policy_version), at=time.time())
    if before is not None:
        record.engines = record.engines or before.engines
        record.restarted = record.restarted or _mark(before, before.restarted, record.policy_version)
        record.finished = record.finished or _mark(before, before.finished, record.policy_version)
    return record


async def newest(bus: Bus, model: str) -> Weights | None:
    """Return the weights that were pushed last for a model.

    Raises:
        BadMessage: the record is not valid.
    """
    stored = await bus.js.last(streams.WEIGHTS, subjects.WEIGHTS.of(model))
    return None if stored is None else _decode(stored.data)


def _before(record: Weights | None, policy_version: str) -> list[str]:
    """Return the versions before a new one; a repeated push counts once."""
    if record is None:
        return []
    if record.policy_version == policy_version:
        return record.before
    return [*record.before, record.policy_version][-MAX_VERSIONS:]


def _mark(record: Weights, version: str | None, policy_version: str) -> str | None:
    """Return the version to name for a restart or finish with an earlier one, now that another version is pushed.

    A name that is pushed again stands for its newest push, so the version that came after its earlier one is named.
    """
    if version != policy_version or record.policy_version == policy_version:
        return version
    versions = _before(record, policy_version)
    return versions[len(versions) - versions[::-1].index(version)] if version in versions else versions[0]


async def _replicas(bus: Bus, model: str, *, was_pushed_before: bool) -> set[str]:
    if not was_pushed_before and not await is_running(bus, model, "models"):
        raise UsageError(not_running(model, "model"))
    found = await find_workers(bus, model, wait_s=LOOK_S, looks=10)
    if any(weights_of(stats) is None for stats in found):
        raise UsageError(f"{model} is {found[0]['metadata'].get('implementation', 'a worker')}, which loads no weights")
    return {stats["id"] for stats in found}


@contextlib.contextmanager
def _opened(weights: bytes | Path) -> Iterator[BinaryIO]:
    """Open the safetensors file, at its beginning."""
    name = "the weights" if isinstance(weights, bytes) else str(weights)
    try:
        with io.BytesIO(weights) if isinstance(weights, bytes) else weights.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            problem = _not_safetensors(file, size)
            if problem:
                raise UsageError(f"{name}: not a safetensors file: {problem}")
            file.seek(0)
            yield file
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None


def _not_safetensors(file: BinaryIO, size: int) -> str:
    """Return what is wrong with a file; a replica would find out only after it was stored.

    The format: https://github.com/huggingface/safetensors#format
    """
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, 100_000_000):
        return "its header is longer than the file"
    try:
        header = msgspec.json.decode(file.read(length), type=dict[str, dict[str, Any]])
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    except (KeyError, IndexError, TypeError, *UNDECODABLE):
        return "its header does not describe tensors"
    expected = 8 + length + max(ends, default=0)
    return "" if expected == size else f"it has {size} bytes, and by its header {expected}"


async def _store_parts(bus: Bus, model: str, name: str, record: Weights, file: BinaryIO) -> tuple[Weights, int]:
    """Store a file in parts; return the record with where they are, and the stream sequence of the first."""
    js = bus.js
    below = subjects.WEIGHTS_PART.begun(model, name)
    digest = hashlib.sha256()
    first = count = size = 0
    while piece := await asyncio.to_thread(file.read, bus.max_body_bytes):
        digest.update(piece)
        ack = await js.publish_with_retry(f"{below}.{count}", piece, {}, patience_s=STORE_PATIENCE_S)
        first = first or ack.seq
        count += 1
        size += len(piece)
    where = {"push": name, "parts": count, "num_bytes": size, "sha256": digest.hexdigest()}
    return msgspec.structs.replace(record, **where), first


async def _store_record(js: JetStream, model: str, record: Weights, after: int) -> int:
    """Make a record the newest one; return its stream sequence."""
    subject = subjects.WEIGHTS.of(model)
    try:
        body = encode(record)
    except BadMessage as error:
        raise UsageError(f"these weights cannot be announced: {error}") from None
    stored = await js.publish_or_last(streams.WEIGHTS, subject, body, last=after, patience_s=STORE_PATIENCE_S)
    if stored is None or stored.data != body:
        raise UsageError(f"another push of weights for {model} was stored first")
    return stored.sequence


async def _remove_parts(js: JetStream, filter_: str, *, before: int = 0) -> None:
    """Remove parts, all that a filter matches or those before a stream sequence."""
    query: dict[str, Any] = {"filter": filter_}
    if before:
        query["seq"] = before
    await js.api(f"STREAM.PURGE.{streams.WEIGHTS}", query, timeout_s=60.0)


async def _take_back(bus: Bus, model: str, record: Weights, replaced: Stored | None, sequence: int) -> None:
    """Make the weights before the newest ones again, so that replicas can start; unless there is a newer push."""
    js, subject = bus.js, subjects.WEIGHTS.of(model)
    if replaced is None:
        await js.api(f"STREAM.PURGE.{streams.WEIGHTS}", {"filter": subject, "seq": sequence + 1}, timeout_s=60.0)
        await bus.publish(subjects.HOLD.of(model), encode(Hold(for_s=0.0)))  # agents read that there are none
    else:
        await js.publish_if_last(subject, replaced.data, last=sequence, patience_s=STORE_PATIENCE_S)
    if record.push is not None:
        await _remove_parts(js, f"{subjects.WEIGHTS_PART.begun(model, record.push)}.*")


async def _confirmed(
    bus: Bus, search: WorkerSearch, policy_version: str, sequence: int, replicas: set[str], deadline_s: float
) -> Pushed:
    """Ask the replicas until each has loaded the weights, refused them, or ended."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    give_up = began + deadline_s
    confirmed: set[str] = set()
    refused: dict[str, str] = {}
    problems: dict[str, str] = {}
    while True:
        for stats in await search.ask(LOOK_S, expected=replicas):
            worker, state = stats["id"], weights_of(stats)
            if state is None:
                continue
            replicas.add(worker)
            if state.loaded >= sequence:
                confirmed.add(worker)
            elif state.refused == sequence:
                refused[worker] = state.problem
            else:
                problems[worker] = state.problem
        waiting = replicas - confirmed - refused.keys()
        for worker in list(waiting):
            if await _is_gone(bus, worker):
                waiting.discard(worker)
                replicas.discard(worker)  # started again it loads them before it serves
        if not waiting or loop.time() >= give_up:
            break
        # The pause grows with the time spent loading, so that the end of a short load is noticed soon.
        await asyncio.sleep(min(LOOK_S, max(0.01, 0.125 * (loop.time() - began))))
    silent = f"not loaded within {deadline_s:g} s"
    missing = refused | {worker: problems.get(worker) or silent for worker in waiting}
    return Pushed(
        policy_version, sorted(confirmed), missing, taken_back=bool(refused) and not confirmed and not waiting
    )


async def _is_gone(bus: Bus, worker: str) -> bool:
    try:
        await bus.request(subjects.PING.of("model", worker), encode(Ping(calls=[])), timeout_s=LOOK_S)
    except NoResponders:
        return bus.is_stable  # otherwise it may have yet to reconnect, as this process just did
    except NoAnswer:
        pass  # one that loads may be busy with it
    return False


def weights_of(stats: dict[str, Any]) -> LoadState | None:
    """Return the state of the weights that a worker reports; None if it loads none, or is not a worker."""
    try:
        subjects.token(stats["id"], "worker")
    except subjects.BadToken:
        return None
    return reported(stats, "weights", LoadState)
