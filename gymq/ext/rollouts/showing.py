"""The work of `gymq rollouts`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cli.shared.cluster import connected, require_run, stored_url
from gymq.cli.shared.run_summary import print_older_rewards
from gymq.data.rows import attempt_index
from gymq.errors import UsageError
from gymq.execution.services.profiler import last_profile
from gymq.ext.rollout_files.shown import exact_record, output_tokens
from gymq.ext.rollouts.transcript import print_transcript, why_no_reward
from gymq.ext.shared.rendering import first_words
from gymq.ext.shared.run_overview import run_progress, run_table
from gymq.ext.shared.runs_here import older_rewards_here
from gymq.protocol import subjects
from gymq.protocol.messages import BadMessage, Outcome, VerifiedRollout
from gymq.render import Listing, listing, listing_console, shown_decimal, shown_number, shown_seconds
from gymq.responses import last_assistant_text
from gymq.runs.stored_runs import Runs

NAME = "gymq rollouts"
DEFAULT_LIMIT = 50
_INDICES = ("task", "rollout", "attempt")
_NUMBERS = (*_INDICES, "reward", "time", "tokens")
_NUMBERS_WIDTH = 52  # of these columns, as a rule
_LEAST_WORDS, _MOST_WORDS = 28, 400  # characters of a reply or a message


async def show_rollouts(
    file: Path | None,
    run: str | None,
    task: int | None,
    rollout: int | None,
    failed: bool,
    limit: int,
    nats: str | None,
    as_json: bool,
) -> int:
    async with AsyncExitStack() as stack:
        if file is None:
            url = await stack.enter_async_context(stored_url(nats))
            bus = await stack.enter_async_context(connected(url, name=NAME))
        else:
            from gymq.ext.rollout_files.temporary_store import imported  # imports all that reads configurations

            bus, (found,) = await stack.enter_async_context(imported([file], name=NAME))
            run = found.run
        if run is None:
            await _list_runs(bus, limit, as_json)
        elif task is not None and rollout is not None:
            await _show(bus, run, task, rollout, as_json)
        else:
            if not await _list(bus, run, task, failed, limit, as_json):
                await require_run(bus, run)
                where = f"run {run}" if task is None else f"task {task} of run {run}"
                print(f"{where} has no {'failed rollouts' if failed else 'rollouts yet'}", file=sys.stderr)
            if file is None:
                print_older_rewards(older_rewards_here(run))
    return 0


async def _list_runs(bus: Bus, limit: int, as_json: bool) -> None:
    records = await Runs(bus).records()
    shown = [await run_progress(bus, record) for record in records[: limit or None]]
    if as_json:
        for state in shown:
            print(msgspec.json.encode(state).decode())
    elif shown:
        listing_console().print(run_table(shown, num_runs=len(records)))
    else:
        print("no runs yet: `gymq collect` starts one")


async def _list(bus: Bus, run: str, task: int | None, failed: bool, limit: int, as_json: bool) -> bool:
    """Print rollouts; return whether there are any."""
    outcomes = _outcomes(bus, run, task, failed, limit)
    if as_json:
        return await _print_records(outcomes, limit)
    if failed:
        rows, table = await _failures(outcomes), _failure_listing(run)
    else:
        rows, table = await _rollouts(outcomes), listing(f"rollouts of {run}", *_NUMBERS, "reply", numbers=_NUMBERS)
    for row in rows[: limit or None]:
        table.add_row(*row)
    if limit and len(rows) > limit:
        table.caption = f"the first {limit}; --limit 0 lists all"
    if rows:
        listing_console().print(table)
    return bool(rows)


async def _print_records(outcomes: AsyncIterator[Outcome], limit: int) -> bool:
    count = 0
    async for outcome in outcomes:
        sys.stdout.buffer.write(exact_record(outcome) + b"\n")
        count += 1
        if count == limit:
            break
    sys.stdout.buffer.flush()
    return count > 0


async def _outcomes(bus: Bus, run: str, task: int | None, failed: bool, limit: int) -> AsyncIterator[Outcome]:
    """Yield the outcomes to list; where a limit cuts them, they are in order of task and rollout."""
    store = OutcomeStore(bus)
    if task is not None:
        found = [outcome async for _, outcome in store.read(run, task)]
        for outcome in sorted(found, key=_place):
            if not failed or not isinstance(outcome, VerifiedRollout):
                yield outcome
    elif failed:
        async for outcome in _failed(bus, run):
            yield outcome
    elif limit:
        ids = map(subjects.RolloutId.of_subject, await store.subjects(run))
        for _, task_index, rollout_index in sorted(one for one in ids if one is not None)[: limit + 1]:
            stored = await store.find_outcome(run, task_index, rollout_index)
            if stored is not None:  # deleted meanwhile
                yield stored[1]
    else:
        async for _, outcome in store.read(run):
            yield outcome


def _place(outcome: Outcome) -> tuple[int, int]:
    return outcome.task_index, outcome.rollout_index


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


async def _rollouts(outcomes: AsyncIterator[Outcome]) -> list[list[str | Text]]:
    """Return the cells of rollouts, in order of task and rollout."""
    room = min(_MOST_WORDS, max(_LEAST_WORDS, listing_console().width - _NUMBERS_WIDTH))
    found = [(_place(outcome), _cells(outcome, room)) async for outcome in outcomes]
    return [cells for _, cells in sorted(found, key=lambda row: row[0])]


def _cells(outcome: Outcome, room: int) -> list[str | Text]:
    if isinstance(outcome, VerifiedRollout):
        result = Text(shown_decimal(outcome.reward))
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
    numbers, names = ("rollouts", "task", "rollout"), ("failure", "at")
    caption = "task, rollout: the first of them; --json lists all"
    title = f"failed rollouts of {run}"
    return listing(title, *numbers, *names, "message", numbers=numbers, names=names, caption=caption)


async def _failures(outcomes: AsyncIterator[Outcome]) -> list[list[str | Text]]:
    """Return the cells of failures by what they say, the most frequent first, with the first rollout that has it."""
    groups: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    async for outcome in outcomes:
        failure_class, stage, message = why_no_reward(outcome)
        said = first_words(message, _MOST_WORDS).plain
        groups.setdefault((failure_class, stage, said), []).append(_place(outcome))
    found = sorted((-len(places), *min(places), group) for group, places in groups.items())
    return [[f"{-count:,}", str(task), str(rollout), *group] for count, task, rollout, group in found]


def _indices(outcome: Outcome) -> tuple[str, str, str]:
    attempt = attempt_index(outcome.row, outcome.attempt) + 1
    return str(outcome.task_index), str(outcome.rollout_index), str(attempt)
