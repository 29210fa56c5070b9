"""The work of `gymq rollouts`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import msgspec
from rich.console import Console
from rich.text import Text

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import READ_BATCH, OutcomeStore
from gymq.cli.shared.cluster import connected, require_run, stored_url
from gymq.cli.shared.errors import UsageError
from gymq.cli.shared.table import run_table
from gymq.cli.shared.transcript import print_transcript, why_no_reward
from gymq.data.rows import attempt_index
from gymq.execution.services.profiler import last_profile
from gymq.protocol.messages import BadMessage, Outcome, VerifiedRollout
from gymq.render import Listing, first_words, listing, listing_console, say, shown_number, shown_seconds
from gymq.responses import last_assistant_text
from gymq.runs.older_rewards import older_rewards_here
from gymq.runs.outcome_fields import exact_record, output_tokens
from gymq.runs.stored_runs import Runs

DEFAULT_LIMIT = 50
_INDICES = ("task", "rollout", "attempt")
_NUMBERS = (*_INDICES, "reward", "time", "tokens")
_NUMBERS_WIDTH = 52  # of these columns, as a rule
_LEAST_WORDS, _MOST_WORDS = 28, 400  # characters of a reply or a message


async def show_rollouts(
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
        listing_console().print(run_table(shown, num_runs=len(records)))
    else:
        print("no runs yet: `gymq collect` starts one")


async def _list(bus: Bus, run: str, task: int | None, failed: bool, limit: int, as_json: bool) -> None:
    console = listing_console()
    table = _failure_listing(run) if failed else listing(f"rollouts of {run}", *_NUMBERS, "reply", numbers=_NUMBERS)
    room = min(_MOST_WORDS, max(_LEAST_WORDS, console.width - _NUMBERS_WIDTH))
    count = 0
    async for outcome in _outcomes(bus, run, task, failed, limit):
        if limit and count == limit:
            table.caption = f"the first {limit}; --limit 0 lists all"
            break
        count += 1
        if as_json:
            sys.stdout.buffer.write(exact_record(outcome) + b"\n")
        elif failed:
            table.add_row(*_failure_cells(outcome))
        else:
            table.add_row(*_cells(outcome, room))
    sys.stdout.buffer.flush()
    if not count:
        await require_run(bus, run)
        where = f"run {run}" if task is None else f"task {task} of run {run}"
        print(f"{where} has no {'failed rollouts' if failed else 'rollouts yet'}", file=sys.stderr)
    elif not as_json:
        console.print(table)
    for sentence in older_rewards_here(run):
        say(sentence)


async def _outcomes(bus: Bus, run: str, task: int | None, failed: bool, limit: int) -> AsyncIterator[Outcome]:
    store = OutcomeStore(bus)
    if task is not None:
        async for _, outcome in store.read_task(run, task):
            if not failed or not isinstance(outcome, VerifiedRollout):
                yield outcome
    elif failed:
        async for outcome in _failed(bus, run):
            yield outcome
    else:
        batch = min(limit + 1, READ_BATCH) if limit else READ_BATCH
        async for _, outcome in store.read(run, batch=batch):
            yield outcome


async def _failed(bus: Bus, run: str) -> AsyncIterator[Outcome]:
    """Yield the outcomes of a run that have no reward; reading stops once there can be no more of them."""
    # What has a reward keeps it, so that at least as many have one now as when the profiler counted them.
    profile, _ = await last_profile(bus.js, run)
    rewarded = sum(agent.rollouts for agent in profile.snapshot().agents.values())
    most = await Runs(bus).num_stored(run) - rewarded
    if most <= 0:
        return
    async for _, outcome in OutcomeStore(bus).read(run):
        if not isinstance(outcome, VerifiedRollout):
            yield outcome
            most -= 1
            if not most:
                return


async def _show(bus: Bus, run: str, task: int, rollout: int, as_json: bool) -> None:
    store = OutcomeStore(bus)
    stored = await store.find(run, task, rollout)
    if stored is None:
        await require_run(bus, run)
        raise UsageError(f"run {run} has no outcome of task {task} rollout {rollout} (yet)")
    try:
        outcome = await store.decode(stored.data)
    except BadMessage as error:
        raise UsageError(f"{stored.subject}: the stored outcome cannot be read: {error}; collect it again") from None
    if as_json:
        sys.stdout.buffer.write(exact_record(outcome) + b"\n")
        sys.stdout.buffer.flush()
    else:
        print_transcript(outcome, Console())


def _cells(outcome: Outcome, room: int) -> list[str | Text]:
    if isinstance(outcome, VerifiedRollout):
        result = Text(f"{outcome.reward:g}")
        text = first_words(last_assistant_text(outcome.response), room)
    else:
        result = Text("-", style="yellow")
        failure_class, _, message = why_no_reward(outcome)
        text = first_words(f"{failure_class}: {message}", room)
    tokens = output_tokens(outcome)
    return [
        *_indices(outcome),
        result,
        shown_seconds(outcome.duration_s),
        shown_number(tokens, ","),
        text,
    ]


def _failure_listing(run: str) -> Listing:
    names = ("failure", "at")
    return listing(f"failed rollouts of {run}", *_INDICES, *names, "message", numbers=_INDICES, names=names)


def _failure_cells(outcome: Outcome) -> list[str | Text]:
    failure_class, stage, message = why_no_reward(outcome)
    return [*_indices(outcome), failure_class, stage, first_words(message, _MOST_WORDS)]


def _indices(outcome: Outcome) -> tuple[str, str, str]:
    attempt = attempt_index(outcome.row, outcome.attempt) + 1
    return str(outcome.task_index), str(outcome.rollout_index), str(attempt)
