"""gymq dead-letters"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gymq.bus import Bus
from gymq.cli.cluster import connected, running_url, stored_url
from gymq.cli.errors import Refused, told_plainly
from gymq.cli.listing import listing
from gymq.cli.printable import first_words, printable
from gymq.cli.units import shown_time
from gymq.dead_letters import Buried, DeadLetters
from gymq.messages import BadMessage, DeadLetter, Submission, Task, decoder
from gymq.replay import NotReplayed, Replay, Replayed

DEFAULT_LIMIT = 50

_WORDS = 400

Nats = Annotated[str | None, Parameter(env_var="GYMQ_NATS")]
Limit = Annotated[int | None, Parameter(validator=Number(gte=0))]
LetterNumber = Annotated[int, Parameter(validator=Number(gte=1))]
All = Annotated[bool, Parameter(name="--all")]

_decode_known = decoder(Task, Submission)

dead_letters = App(
    name="dead-letters",
    help="What was given up: list it, read it, give it back or drop it.",
    default_parameter=Parameter(negative=()),
)


@dead_letters.command(name="list")
def list_(*, run: str | None = None, limit: Limit = None, nats: Nats = None, json: bool = False) -> int:
    """List dead letters, the newest last.

    Rollouts that ended without a reward are here, and whatever could not become a rollout.

    Args:
        run: only letters of this run.
        limit: list only so many of the newest, 0 for all; default: 50, with --json all.
        nats: URL of a NATS server with the streams of gymq.
        json: print one JSON object a line.
    """
    with told_plainly():
        if limit is None:
            limit = 0 if json else DEFAULT_LIMIT
        return asyncio.run(_list(run, limit, nats, json))


@dead_letters.command
def show(number: LetterNumber, /, *, nats: Nats = None, json: bool = False) -> int:
    """Show one dead letter whole: why, where, and what was published.

    Args:
        number: as `gymq dead-letters list` gives it.
        nats: URL of a NATS server with the streams of gymq.
        json: print it as one JSON object.
    """
    with told_plainly():
        return asyncio.run(_show(number, nats, json))


@dead_letters.command
def replay(*numbers: LetterNumber, run: str | None = None, all_: All = False, nats: Nats = None) -> int:
    """Give dead letters back: rollouts are made again, submissions submitted again.

    A rollout is made again only if it still has no reward. Letters that are given back, or need not be, are removed;
    those that cannot be stay, and the exit status is 1.

    Args:
        numbers: as `gymq dead-letters list` gives them.
        run: all letters of this run.
        all_: all letters.
        nats: URL of the cluster; by default the one that runs in this folder.
    """
    with told_plainly():
        _check_choice(numbers, run, all_)
        return asyncio.run(_replay(numbers, run, nats))


@dead_letters.command
def drop(*numbers: LetterNumber, run: str | None = None, all_: All = False, nats: Nats = None) -> int:
    """Remove dead letters for good. The failures of their rollouts stay stored.

    Args:
        numbers: as `gymq dead-letters list` gives them.
        run: all letters of this run.
        all_: all letters.
        nats: URL of a NATS server with the streams of gymq.
    """
    with told_plainly():
        _check_choice(numbers, run, all_)
        return asyncio.run(_drop(numbers, run, nats))


def _check_choice(numbers: tuple[int, ...], run: str | None, all_: bool) -> None:
    if (len(numbers) > 0) + (run is not None) + all_ != 1:
        raise Refused("say which: numbers from `gymq dead-letters list`, or --run RUN, or --all")


async def _list(run: str | None, limit: int, nats: str | None, as_json: bool) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq dead-letters") as bus:
        table = listing("dead letters", "number", "when", "what", "failure", "at", "reason", numbers=("number",))
        count = 0
        async for buried in _listed(DeadLetters(bus), run, limit):
            count += 1
            if as_json:
                print(msgspec.json.encode(_head(buried)).decode())
            else:
                table.add_row(*_cells(buried))
    if not count:
        print("no dead letters" if run is None else f"no dead letters of run {run}", file=sys.stderr)
    elif not as_json:
        if count == limit:
            table.caption = f"the newest {limit}; --limit 0 lists all"
        Console().print(table)
    return 0


async def _listed(letters: DeadLetters, run: str | None, limit: int) -> AsyncIterator[Buried]:
    if limit:
        for buried in await letters.newest(limit, run):
            yield buried
    else:
        async for buried in letters.read(run):
            yield buried


async def _show(number: int, nats: str | None, as_json: bool) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq dead-letters") as bus:
        letters = DeadLetters(bus)
        buried = await _found(letters, number)
        try:
            body = await letters.body(buried.letter)
        except BadMessage:
            body = buried.letter.body  # a claim on parts that are gone
    if as_json:
        print(msgspec.json.encode({**_head(buried), "body": _as_json(body)}).decode())
    else:
        _print(buried, body)
    return 0


async def _replay(numbers: tuple[int, ...], run: str | None, nats: str | None) -> int:
    again = needless = kept = 0
    async with connected(await running_url(nats), name="gymq dead-letters") as bus:
        replaying = Replay(bus)
        async for buried in _chosen(bus, numbers, run):
            try:
                done = await replaying.replay(buried)
            except NotReplayed as problem:
                kept += 1
                print(f"letter {buried.number} stays: {problem}", file=sys.stderr)
                continue
            again += done is Replayed.AGAIN
            needless += done is Replayed.NEEDLESS
    print(f"{again} given back", end="")
    print(f", {needless} had a reward by now" if needless else "", end="")
    print(f", {kept} left" if kept else "")
    return 1 if kept else 0


async def _drop(numbers: tuple[int, ...], run: str | None, nats: str | None) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq dead-letters") as bus:
        letters = DeadLetters(bus)
        if numbers:
            async for buried in _chosen(bus, numbers, run):
                await letters.remove(buried.number)
            count = len(set(numbers))
        else:
            count = await letters.remove_all(run)
    print(f"{count} dropped")
    return 0


async def _chosen(bus: Bus, numbers: tuple[int, ...], run: str | None) -> AsyncIterator[Buried]:
    """The letters of some numbers, all of which must exist, or of a run, or all."""
    letters = DeadLetters(bus)
    if not numbers:
        async for buried in letters.read(run):
            yield buried
        return
    for buried in [await _found(letters, number) for number in dict.fromkeys(numbers)]:
        yield buried


async def _found(letters: DeadLetters, number: int) -> Buried:
    buried = await letters.find(number)
    if buried is None:
        raise Refused(f"there is no dead letter {number}; `gymq dead-letters list` shows those there are")
    return buried


def _cells(buried: Buried) -> list[str | Text]:
    letter = buried.letter
    return [
        str(buried.number),
        shown_time(letter.at),
        printable(letter.rollout or letter.subject),
        letter.failure_class or "-",
        letter.stage or "-",
        first_words(letter.reason, _WORDS),
    ]


def _head(buried: Buried) -> dict[str, Any]:
    """What is said of a letter in JSON; its body is left out."""
    letter = buried.letter
    return {
        "number": buried.number,
        "at": letter.at,
        "subject": letter.subject,
        "rollout": letter.rollout or None,
        "failure_class": letter.failure_class,
        "stage": letter.stage,
        "reason": letter.reason,
    }


def _print(buried: Buried, body: bytes) -> None:
    console = Console()
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(buried.number, buried.letter):
        table.add_row(printable(name, "bold"), printable(value))
    console.print(table)
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
    if letter.rollout.count("/") == 2:
        run, task, rollout = letter.rollout.split("/")
        yield "what was said", f"gymq rollouts --run {run} --task {task} --rollout {rollout}"
    yield "to give it back", f"gymq dead-letters replay {number}"


def _as_json(body: bytes) -> Any:
    """A task or a submission as JSON members, its row as the object it is; anything else as text."""
    try:
        message: Task | Submission = _decode_known(body)
        members = {"type": message.__struct_config__.tag, **msgspec.structs.asdict(message)}
        if isinstance(message, Task):
            members["row"] = msgspec.Raw(message.row)
            msgspec.json.decode(message.row)
        else:
            members["row"] = msgspec.msgpack.decode(message.row)
        msgspec.json.encode(members)
    except (BadMessage, msgspec.MsgspecError, RecursionError, OverflowError, TypeError, ValueError):
        return body.decode("utf-8", "backslashreplace")
    return members
