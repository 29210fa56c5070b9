"""A run whose rows changed begins again under a new name, with the rollouts of the rows that are as before."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.data.disk_index import EarlierRows, TaskCounts
from gymq.data.jsonl import JsonlFile, atomic_write, numbered_lines, truncate_torn_line
from gymq.data.rows import RowKey, decode_line, read_rows, with_task
from gymq.data.run_files import RunFiles
from gymq.protocol.messages import VerifiedRollout
from gymq.render import counted

AT_ONCE = 64  # outcomes that are stored


def next_name(run: str, token: str, input_digest: str) -> str:
    """Return the name of the run that follows a run with other rows: the same one for the same rows."""
    digest = hashlib.blake2b(f"{run}/{input_digest}".encode(), digest_size=4).hexdigest()
    return f"{token}-{digest}"


class NewRows(NamedTuple):
    """The files of a pass over the input, which become those of the new run."""

    rows: Path
    refused: Path  # failures of the rows that cannot be used


async def carry_over(bus: Bus, files: RunFiles, earlier: str, run: str, new: NewRows, known: EarlierRows) -> str:
    """Give a new run the rewarded rollouts of the rows that an earlier one has too, in the store and in staged files.

    The outcomes of the earlier run stay in the store under its name; its tasks are removed from the queue.

    Args:
        known: the rows of the earlier run, each with its task in the new one.

    Returns:
        A sentence on what became of the rows of the earlier run.

    Raises:
        BusError: the store cannot be read or written; the files are as they were.
    """
    with TaskCounts() as counts:
        await asyncio.to_thread(_count, counts, new.rows)
        await streams.delete_tasks(bus.js, earlier)
        await _copy_outcomes(bus, earlier, run, counts, known)
        num_removed = await asyncio.to_thread(_stage, files, run, new, known)
        return _shown(known, len(counts), num_removed, files)


def _count(counts: TaskCounts, rows: Path) -> None:
    for row in read_rows(JsonlFile(rows)):
        counts.add(row.task_index)


async def _copy_outcomes(bus: Bus, earlier: str, run: str, counts: TaskCounts, known: EarlierRows) -> None:
    store, room = OutcomeStore(bus), asyncio.Semaphore(AT_ONCE)
    try:
        async with asyncio.TaskGroup() as group:
            async for _, outcome in store.read(earlier, batch=AT_ONCE):
                task_index = known.task_now(outcome.task_index, outcome.rollout_index)
                if task_index is None or not isinstance(outcome, VerifiedRollout):
                    continue
                row = with_task(outcome.row, task_index)
                moved = msgspec.structs.replace(
                    outcome, run=run, task_index=task_index, num_rollouts=counts[task_index], row=row
                )
                await room.acquire()
                putting = group.create_task(store.put(moved, replaces=None, patience_s=60.0))
                putting.add_done_callback(lambda _: room.release())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def _stage(files: RunFiles, run: str, new: NewRows, known: EarlierRows) -> int:
    """Stage the files of the new run; results of rows that it does not have are staged as removed, and counted."""
    num_removed = 0
    staged = files.staged(run)
    new.rows.replace(staged[files.materialised])
    new.refused.replace(staged[files.failures])
    for path in (files.output, files.removed):
        if path.exists():
            truncate_torn_line(path)
    with atomic_write(staged[files.output]) as kept, atomic_write(staged[files.removed]) as removed:
        if files.removed.exists():
            removed.writelines(JsonlFile(files.removed))
        for _, where, line in numbered_lines(JsonlFile(files.output)) if files.output.exists() else ():
            key = decode_line(line, RowKey, where)
            task_index = known.task_now(key.task_index, key.rollout_index)
            if task_index is None:
                num_removed += 1
                removed.write(line)
            else:
                kept.write(with_task(line, task_index) + b"\n")
    if not staged[files.removed].stat().st_size:
        staged[files.removed].unlink()
    return num_removed


def _shown(known: EarlierRows, num_tasks: int, num_removed: int, files: RunFiles) -> str:
    before, kept = known.num_tasks()
    are, their = ("is", "its") if kept == 1 else ("are", "their")
    parts = [f"{kept:,} of {counted(before, 'row')} {are} as before: {their} rollouts are kept"]
    if num_tasks > kept:
        parts.append(f"{counted(num_tasks - kept, 'row')} {'is' if num_tasks - kept == 1 else 'are'} new")
    if before > kept:
        parts.append(f"{counted(before - kept, 'row')} {'is' if before - kept == 1 else 'are'} removed")
    if num_removed:
        parts.append(f"{counted(num_removed, 'rollout')} of removed rows moved to {files.removed}")
    return "; ".join(parts)
