"""gymq rollouts"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gymq.bus import Bus
from gymq.cli.cluster import connected, stored_url
from gymq.cli.errors import Refused, told_plainly
from gymq.cli.listing import listing
from gymq.cli.printable import first_words
from gymq.cli.run_table import run_table
from gymq.cli.transcript import print_transcript, tokens_of, why_no_reward
from gymq.cli.units import shown_seconds
from gymq.jetstream import JetStream
from gymq.messages import BadMessage, Outcome, Rollout
from gymq.outcome_store import READ_BATCH, OutcomeStore
from gymq.profiler import read_profile
from gymq.responses import last_assistant_text
from gymq.runs import Runs, profiled_totals
from gymq.tokens import encode_json

DEFAULT_LIMIT = 50

_INDICES = ("task", "rollout", "attempt")
_NUMBERS = (*_INDICES, "reward", "time", "tokens")
_NUMBERS_WIDTH = 52  # of these columns, as a rule
_LEAST_WORDS = 28

_encode = msgspec.json.Encoder(enc_hook=encode_json).encode


def rollouts(
    *,
    run: str | None = None,
    task: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    rollout: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    failed: bool = False,
    limit: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
    json: bool = False,
) -> int:
    """List the runs, list the rollouts of a run, or read one rollout whole.

    Reads from the cluster that runs in this folder or at --nats; if there is none, from what is stored in this folder.

    Args:
        run: the run to list; without it the runs are listed.
        task: only rollouts of this task (its index in the data set).
        rollout: with --task: show this one whole, from the prompt to the verdict.
        failed: only rollouts that have no reward.
        limit: list so many at most, 0 for all; default: 50, with --json all.
        nats: URL of a NATS server with the streams of gymq.
        json: print the exact records, one JSON object a line.
    """
    with told_plainly():
        if run is None and (task is not None or rollout is not None or failed):
            raise Refused("--task, --rollout and --failed need --run; `gymq rollouts` alone lists the runs")
        if rollout is not None and task is None:
            raise Refused("--rollout needs --task: a rollout is counted within its task")
        if limit is None:
            limit = 0 if json else DEFAULT_LIMIT
        return asyncio.run(_rollouts(run, task, rollout, failed, limit, nats, json))


async def _rollouts(
    run: str | None, task: int | None, rollout: int | None, failed: bool, limit: int, nats: str | None, as_json: bool
) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq rollouts") as bus:
        if run is None:
            await _list_runs(bus, limit, as_json)
        elif task is None or rollout is None:
            await _list(bus, run, task, failed, limit, as_json)
        else:
            await _show(bus, run, task, rollout, as_json)
    return 0


async def _list_runs(bus: Bus, limit: int, as_json: bool) -> None:
    runs = Runs(bus)
    records = await runs.records()
    shown = [await runs.state(record) for record in records[: limit or None]]
    if as_json:
        for state in shown:
            print(msgspec.json.encode(state).decode())
    elif shown:
        Console().print(run_table(shown, num_runs=len(records)))
    else:
        print("no runs yet: `gymq collect` starts one")


async def _list(bus: Bus, run: str, task: int | None, failed: bool, limit: int, as_json: bool) -> None:
    console = Console()
    table = _failure_listing(run) if failed else _listing(run)
    room = max(_LEAST_WORDS, console.width - _NUMBERS_WIDTH)
    count = 0
    async for outcome in _outcomes(bus, run, task, failed, limit):
        if limit and count == limit:
            table.caption = f"the first {limit}; --limit 0 lists all"
            break
        count += 1
        if as_json:
            sys.stdout.buffer.write(exact(outcome) + b"\n")
        elif failed:
            table.add_row(*_failure_cells(outcome))
        else:
            table.add_row(*_cells(outcome, room))
    sys.stdout.buffer.flush()
    if not count:
        await _require_run(bus, run)
        where = f"run {run}" if task is None else f"task {task} of run {run}"
        print(f"{where} has no {'failed rollouts' if failed else 'rollouts yet'}", file=sys.stderr)
    elif not as_json:
        console.print(table)


async def _outcomes(bus: Bus, run: str, task: int | None, failed: bool, limit: int) -> AsyncIterator[Outcome]:
    store = OutcomeStore(bus)
    if task is not None:
        async for _, outcome in store.read_task(run, task):
            if not failed or not isinstance(outcome, Rollout):
                yield outcome
    elif failed:
        async for outcome in _failed(bus, run):
            yield outcome
    else:
        batch = min(limit + 1, READ_BATCH) if limit else READ_BATCH
        async for _, outcome in store.read(run, batch=batch):
            yield outcome


async def _failed(bus: Bus, run: str) -> AsyncIterator[Outcome]:
    """The outcomes of a run that have no reward; once there can be no more of them, the rest is not read."""
    # What has a reward keeps it, so that at least as many have one now as when the profiler counted them.
    rewarded = profiled_totals(await read_profile(JetStream(bus), run)).num_rewarded
    most = await Runs(bus).num_stored(run) - rewarded
    if most <= 0:
        return
    async for _, outcome in OutcomeStore(bus).read(run):
        if not isinstance(outcome, Rollout):
            yield outcome
            most -= 1
            if not most:
                return


async def _show(bus: Bus, run: str, task: int, rollout: int, as_json: bool) -> None:
    store = OutcomeStore(bus)
    stored = await store.find(run, task, rollout)
    if stored is None:
        await _require_run(bus, run)
        raise Refused(f"run {run} has no outcome of task {task} rollout {rollout} (yet)")
    try:
        outcome = await store.decode(stored.data)
    except BadMessage as error:
        raise Refused(f"{stored.subject}: what is stored there cannot be read: {error}; collect it again") from None
    if as_json:
        sys.stdout.buffer.write(exact(outcome) + b"\n")
        sys.stdout.buffer.flush()
    else:
        print_transcript(outcome, Console())


async def _require_run(bus: Bus, run: str) -> None:
    runs = Runs(bus)
    if await runs.record(run) is not None or await runs.num_stored(run):
        return
    names = [record.run for record in (await runs.records())[:10]]
    raise Refused(f"there is no run {run!r}; " + (f"the newest are {', '.join(names)}" if names else "there are none"))


def exact(outcome: Outcome) -> bytes:
    """The whole record as JSON, with the row as the object it is and token arrays as lists."""
    members: dict[str, Any] = {"type": outcome.__struct_config__.tag, **msgspec.structs.asdict(outcome)}
    try:
        msgspec.json.decode(outcome.row)
        members["row"] = msgspec.Raw(outcome.row)
    except (msgspec.DecodeError, UnicodeDecodeError):
        members["row"] = outcome.row.decode("utf-8", "backslashreplace")
    return _encode(members)


def _listing(run: str) -> Table:
    return listing(f"rollouts of {run}", *_NUMBERS, "reply", numbers=_NUMBERS)


def _cells(outcome: Outcome, room: int) -> list[str | Text]:
    if isinstance(outcome, Rollout):
        result = Text(f"{outcome.reward:g}")
        text = first_words(last_assistant_text(outcome.response), room)
    else:
        result = Text("-", style="yellow")
        failure_class, _, message = why_no_reward(outcome)
        text = first_words(f"{failure_class}: {message}", room)
    tokens = tokens_of(outcome)
    return [
        *_indices(outcome),
        result,
        shown_seconds(outcome.duration_s),
        "-" if tokens is None else f"{tokens:,}",
        text,
    ]


def _failure_listing(run: str) -> Table:
    return listing(f"failed rollouts of {run}", *_INDICES, "failure", "at", "message", numbers=_INDICES)


def _failure_cells(outcome: Outcome) -> list[str | Text]:
    failure_class, stage, message = why_no_reward(outcome)
    return [*_indices(outcome), failure_class, stage, first_words(message, 400)]


def _indices(outcome: Outcome) -> tuple[str, str, str]:
    return str(outcome.task_index), str(outcome.rollout_index), str(outcome.attempt + 1)
