"""The work of `gymq dead-letters`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from gymq.bus import Bus
from gymq.bus.credentials import OPERATOR
from gymq.bus.queue.dead_letters import DeadLetterEntry, DeadLetters
from gymq.cli.shared.cluster import connected, running_url, stored_url
from gymq.errors import UsageError
from gymq.ext.shared.rendering import facts_table, first_words, shown_time
from gymq.ext.shared.requeue import Requeuer, RequeueResult
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BadMessage, DeadLetter, Submission, Task
from gymq.protocol.subjects import RolloutId
from gymq.render import listing, listing_console, printable

DEFAULT_LIMIT = 50
_decode_known = Decoder(Task, Submission)


def check_choice(numbers: tuple[int, ...], run: str | None, all_: bool) -> None:
    if (len(numbers) > 0) + (run is not None) + all_ != 1:
        raise UsageError("choose the letters: numbers from `gymq dead-letters list`, --run RUN or --all")


async def list_letters(run: str | None, limit: int, nats: str | None, as_json: bool) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq dead-letters") as bus:
        names = ("when", "what", "failure", "at")
        table = listing("dead letters", "number", *names, "reason", numbers=("number",), names=names)
        count = 0
        async for entry in _listed(DeadLetters(bus), run, limit):
            count += 1
            if as_json:
                print(msgspec.json.encode(_head(entry)).decode())
            else:
                table.add_row(*_cells(entry))
    if not count:
        print("no dead letters" if run is None else f"no dead letters of run {run}", file=sys.stderr)
    elif not as_json:
        if count == limit:
            table.caption = f"the newest {limit}; --limit 0 lists all"
        listing_console().print(table)
    return 0


async def _listed(letters: DeadLetters, run: str | None, limit: int) -> AsyncIterator[DeadLetterEntry]:
    if limit:
        for entry in await letters.newest(limit, run):
            yield entry
    else:
        async for entry in letters.read(run):
            yield entry


async def show_letter(number: int, nats: str | None, as_json: bool) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq dead-letters") as bus:
        letters = DeadLetters(bus)
        entry = await _found(letters, number)
        try:
            body = await letters.body(entry.letter)
        except BadMessage:
            body = entry.letter.body  # its large body has expired
    if as_json:
        print(msgspec.json.encode({**_head(entry), "body": _as_json(body)}).decode())
    else:
        _print(entry, body)
    return 0


async def requeue_letters(numbers: tuple[int, ...], run: str | None, nats: str | None) -> int:
    again = rewarded = kept = 0
    async with connected(await running_url(nats), name="gymq dead-letters", role=OPERATOR) as bus:
        requeuer = Requeuer(bus)
        async for entry in _chosen(bus, numbers, run):
            try:
                done = await requeuer.requeue(entry)
            except UsageError as problem:
                kept += 1
                print(f"letter {entry.number} not requeued: {problem}", file=sys.stderr)
                continue
            again += done is RequeueResult.AGAIN
            rewarded += done is RequeueResult.REWARDED
    print(f"{again} requeued", end="")
    print(f", {rewarded} had a reward by now" if rewarded else "", end="")
    print(f", {kept} left" if kept else "")
    return 1 if kept else 0


async def drop_letters(numbers: tuple[int, ...], run: str | None, nats: str | None) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq dead-letters", role=OPERATOR) as bus:
        letters = DeadLetters(bus)
        if numbers:
            async for entry in _chosen(bus, numbers, run):
                await letters.remove(entry.number)
            count = len(set(numbers))
        else:
            count = await letters.remove_all(run)
    print(f"{count} dropped")
    return 0


async def _chosen(bus: Bus, numbers: tuple[int, ...], run: str | None) -> AsyncIterator[DeadLetterEntry]:
    """Yield the dead letters with some numbers, all of which must exist, or those of a run, or all."""
    letters = DeadLetters(bus)
    if not numbers:
        async for entry in letters.read(run):
            yield entry
        return
    for entry in [await _found(letters, number) for number in dict.fromkeys(numbers)]:
        yield entry


async def _found(letters: DeadLetters, number: int) -> DeadLetterEntry:
    entry = await letters.find(number)
    if entry is None:
        raise UsageError(f"dead letter {number} not found; `gymq dead-letters list` lists them")
    return entry


def _cells(entry: DeadLetterEntry) -> list[str | Text]:
    letter = entry.letter
    return [
        str(entry.number),
        shown_time(letter.at),
        printable(letter.rollout or letter.subject),
        letter.failure_class or "-",
        letter.stage or "-",
        first_words(letter.reason, 400),
    ]


def _head(entry: DeadLetterEntry) -> dict[str, Any]:
    """Return the JSON fields of a letter without its body."""
    letter = entry.letter
    return {
        "number": entry.number,
        "at": letter.at,
        "subject": letter.subject,
        "rollout": letter.rollout or None,
        "failure_class": letter.failure_class,
        "stage": letter.stage,
        "reason": letter.reason,
    }


def _print(entry: DeadLetterEntry, body: bytes) -> None:
    console = Console()
    console.print(facts_table(_facts(entry.number, entry.letter)))
    console.print()
    shown = _as_json(body)
    text = shown if isinstance(shown, str) else msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
    console.print(Text(f"published ({len(body):,} bytes)", "bold"))
    console.print(printable(text), soft_wrap=True)


def _facts(number: int, letter: DeadLetter) -> Iterator[tuple[str, str]]:
    yield "dead letter", str(number)
    yield "when", shown_time(letter.at)
    if letter.rollout:
        yield "rollout", letter.rollout
    if letter.failure_class:
        yield "failure", f"{letter.failure_class} at {letter.stage}"
    yield "reason", letter.reason
    yield "published to", letter.subject
    found = RolloutId.parse(letter.rollout)
    if found is not None:
        run, task, rollout = found
        yield "conversation", f"gymq rollouts --run {run} --task {task} --rollout {rollout}"
    yield "requeue it", f"gymq dead-letters requeue {number}"


def _as_json(body: bytes) -> Any:
    """Return a task or a submission as fields of JSON, its row as an object; anything else as text."""
    try:
        message: Task | Submission = _decode_known(body)
        fields = {"type": message.__struct_config__.tag, **msgspec.structs.asdict(message)}
        if isinstance(message, Task):
            fields["row"] = msgspec.Raw(message.row)
            msgspec.json.decode(message.row)
        else:
            fields["row"] = msgspec.msgpack.decode(message.row)
        msgspec.json.encode(fields)
    except (BadMessage, msgspec.MsgspecError, RecursionError, OverflowError, TypeError, ValueError):
        return body.decode("utf-8", "backslashreplace")
    return fields
