"""The checks of an audit. Each tests one promise that every environment makes."""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from functools import partial
from typing import Any, NamedTuple

from gymq.data.solutions import Action
from gymq.errors import UsageError
from gymq.ext.audit.audited import CHECK_S, REFUSALS, AuditedEnvironment, Outcome
from gymq.ext.audit.behaviour import idle_session, malformed_rows, tools
from gymq.ext.audit.families import Variant, is_taken, variants
from gymq.ext.audit.gold import GoldRow
from gymq.ext.audit.hostile import hostile_replies, repeated, tokens_of
from gymq.ext.audit.load import LoopTimer, busy_neighbours, in_time, processor_s
from gymq.ext.audit.report import REPLIES
from gymq.ext.shared.checks import UNDECIDED, Check, checked

MAX_HELD_S = 1.0  # longest time that one callback may hold the event loop
REPEATED = "repeated text"
HEAVY = frozenset({REPEATED, "huge", "deep"})  # only for the first row, and once

REPEATED_CHARS = (4_000, 16_000, 64_000)  # each is four times the one before
GROWTH_MIN_S = 0.1  # less is not worth a finding

Key = tuple[str, int, str]
"""A reply: `gold` or one of `REPLIES`, the number of the gold row, and a label."""


class Trial(NamedTuple):
    """A reply to verify for a gold row."""

    key: Key
    row: GoldRow
    reply: dict[str, Any] | list[Action]

    @property
    def where(self) -> str:
        """Its place in reports."""
        of, _, label = self.key
        return f"{self.row.where}, {of} {label}".strip()


class Checks:
    """The checks of one environment; `run` runs one of them by its name."""

    def __init__(self, audited: AuditedEnvironment, chosen: Collection[str]) -> None:
        self._audited = audited
        self._chosen = chosen
        self._watch = LoopTimer()
        self._held_s = 0.0  # the longest time that a reply held the event loop
        self._held_by = ""
        self._growths: list[str] = []
        self._untried: Counter[str] = Counter()  # replies by their name, for which there was no time
        self._outcomes: dict[Key, Outcome] | None = None
        self._by_name: dict[str, Callable[[], Awaitable[Check]]] = {
            "gold": self._gold,
            "dressed answers": partial(self._families, "dressed answers", is_right=True),
            "near misses": partial(self._families, "near misses", is_right=False),
            "malformed rows": partial(malformed_rows, audited),
            "same twice": self._same_twice,
            "under load": self._under_load,
            "growth": self._growth,
            "event loop": self._event_loop,
            "an idle session": partial(idle_session, audited),
            "tools": partial(tools, audited),
            "secrets": self._secrets,
            "time": self._time,
        }

    async def run(self, name: str) -> Check:
        """Run one check.

        Args:
            name: one of `gymq.ext.audit.report.CHECKS`.

        Raises:
            UsageError: it cannot be decided.
        """
        return await (self._replies(name) if name in REPLIES else self._by_name[name]())

    # Replies ----------------------------------------------------------------------------------------------------------

    async def _gold(self) -> Check:
        outcomes = await self._all_outcomes()
        problems = []
        for number, row in enumerate(self._audited.gold):
            found = outcomes["gold", number, ""]
            if found.failure in UNDECIDED:
                raise UsageError(
                    f"{row.where}: the correct reply is undecided: {found.message}; replace what the worker "
                    "asks elsewhere with `mocked` in tests/mocks.py beside it"
                )
            if found.reward is None or not math.isclose(found.reward, row.reward, abs_tol=1e-6):
                problems.append(f"{row.where}: {found}, expected {row.reward:g}")
        return checked("gold", problems, f"{len(self._audited.gold)} right replies get their reward")

    async def _replies(self, name: str) -> Check:
        outcomes = await self._all_outcomes()
        problems: list[str] = []
        allowed: dict[str, None] = {}
        highest = -math.inf
        count = 0
        for (of, number, label), found in outcomes.items():
            row = self._audited.gold[number]
            if of != name:
                continue
            count += 1
            if found.reward is None:
                if found.failure not in REFUSALS:
                    problems.append(f"{row.where}, {label}: {found}")
            elif found.reward > row.floor + 1e-9:
                if name in row.gold.may_pass:
                    allowed[f"{row.where} may reward it: {row.gold.may_pass[name]}"] = None
                else:
                    problems.append(f"{row.where}, {label}: reward {found.reward:g}, no more than {row.floor:g} is due")
            else:
                highest = max(highest, found.reward)
        shown = f", rewards up to {highest:g}" if math.isfinite(highest) else ""
        total = count + self._untried[name]
        return checked(name, problems, f"{_of(count, total, 'replies')}{shown}", list(allowed))

    async def _families(self, name: str, *, is_right: bool) -> Check:
        rows = self._audited.gold
        if any(row.gold.judge for row in rows):
            return Check(name, "none", "the mock judge knows no other replies")
        worth = [row for row in rows if row.reward > row.floor]
        problems: list[str] = []
        allowed: dict[str, None] = {}
        count = 0
        for row, variant in in_time(variants(worth, runs_calls=self._audited.has_tools), CHECK_S):
            if variant.is_right != is_right or not await self._takes(row, variant):
                continue
            count += 1
            found = await self._audited.outcome(variant.row, variant.reply, f"{row.where}, {name} {variant.label}")
            if is_taken(found.reward, row) == is_right:
                continue
            if name in row.gold.may_pass:
                allowed[f"{row.where} may differ: {row.gold.may_pass[name]}"] = None
            else:
                is_wrong = "a right answer, false 0" if is_right else "a wrong answer, false 1"
                problems.append(f"{row.where}, {variant.label}: {found}; {is_wrong}")
        if not count:
            return Check(name, "none", "no answer in a gold reply can be changed")
        return checked(name, problems, f"{count} {'right' if is_right else 'wrong'} answers", list(allowed))

    async def _takes(self, row: GoldRow, variant: Variant) -> bool:
        """Return whether the verifier takes what a variant rests on."""
        for needed, reply in variant.needs:
            found = await self._audited.outcome(needed, reply, f"{row.where}, {variant.label}")
            if not is_taken(found.reward, row):
                return False
        return True

    async def _all_outcomes(self) -> dict[Key, Outcome]:
        """Return the outcomes of the chosen replies."""
        if self._outcomes is None:
            outcomes: dict[Key, Outcome] = {}
            names = [name for name in REPLIES if name in self._chosen]
            if not names and "event loop" in self._chosen:
                names = list(REPLIES)
            with self._watch.watching():
                for one in self._in_turn(names):
                    outcomes[one.key], _ = await self._watched(one.row, one.reply, one.where)
                if REPEATED in names or "growth" in self._chosen:
                    row = self._audited.gold[0]
                    for token in in_time(tokens_of(row), CHECK_S):
                        async for chars, outcome in self._repeat(token, row):
                            outcomes[REPEATED, 0, f"{token!r} again and again, {chars:,} characters"] = outcome
            self._outcomes = outcomes
        return self._outcomes

    async def _watched(
        self, row: GoldRow, response: dict[str, Any] | list[Action], where: str
    ) -> tuple[Outcome, float]:
        """Return the outcome of a reply, and its processor seconds; note how long the loop is held."""
        held_s = spent_s = math.inf
        for _ in range(3):  # the first computation in a process waits for its start
            self._watch.lap_s()
            before = processor_s()
            # In a separate task, so that callbacks of the audit are not measured.
            outcome = await asyncio.create_task(self._audited.outcome(row.row, response, where, timed=True))
            spent_s = min(spent_s, processor_s() - before)
            held_s = min(held_s, self._watch.lap_s())
            if held_s <= MAX_HELD_S:
                break
        if held_s > self._held_s:
            self._held_s, self._held_by = held_s, where
        return outcome, spent_s

    def _trials(self, names: Collection[str]) -> Iterator[Trial]:
        for number, row in enumerate(self._audited.gold):
            yield Trial(("gold", number, ""), row, row.gold.actions)
            for name in names:
                if name != REPEATED and (number == 0 or name not in HEAVY):
                    for label, response in hostile_replies(name, row):
                        yield Trial((name, number, label), row, response)

    def _in_turn(self, names: Collection[str]) -> Iterator[Trial]:
        """Yield one reply of each name for each row, and then the others until the time is over."""
        first: dict[tuple[str, int], Trial] = {}
        others = []
        for one in self._trials(names):
            if first.setdefault(one.key[:2], one) is not one:
                others.append(one)
        yield from first.values()
        self._untried = Counter(one.key[0] for one in others)
        for one in in_time(others, CHECK_S):
            self._untried[one.key[0]] -= 1
            yield one

    # Verdicts that agree ----------------------------------------------------------------------------------------------

    async def _light(self) -> list[Trial]:
        """Return the replies that are quickly verified, those with an outcome first.

        Of an environment that is not deterministic only gold replies must have the same reward each time.
        """
        known = await self._all_outcomes()
        names = [name for name in REPLIES if name not in HEAVY] if self._audited.author.deterministic else []
        return sorted(self._trials(names), key=lambda one: one.key not in known)

    async def _verified(self, one: Trial) -> Outcome:
        return await self._audited.outcome(one.row.row, one.reply, one.where)

    async def _first(self, one: Trial) -> Outcome:
        outcomes = await self._all_outcomes()
        if one.key not in outcomes:
            outcomes[one.key] = await self._verified(one)
        return outcomes[one.key]

    async def _same_twice(self) -> Check:
        asked = await self._light()
        problems = []
        count = 0
        # In another order than before, because earlier verifications must not matter.
        for one in in_time(reversed(asked), CHECK_S):
            count += 1
            before = await self._first(one)
            again = await self._verified(one)
            if again.reward != before.reward:
                problems.append(f"{one.where}: first {before}, then {again}")
        return checked("same twice", problems, f"{_of(count, len(asked), 'verdicts')} are the same when asked again")

    async def _under_load(self) -> Check:
        asked = await self._light()
        if not self._audited.author.deterministic:
            asked *= 4
        count = len(asked)
        before = [await self._first(one) for one in in_time(asked, CHECK_S)]
        asked = asked[: len(before)]
        most = 16
        slots = asyncio.Semaphore(most)

        async def again(one: Trial) -> Outcome:
            async with slots:
                return await self._verified(one)

        neighbours = os.cpu_count() or 1
        with busy_neighbours(neighbours):
            after = await asyncio.gather(*map(again, asked))
        problems = [
            f"{one.where}: alone {first}, under load {second}"
            for one, first, second in zip(asked, before, after, strict=True)
            if first.reward != second.reward
        ]
        return checked(
            "under load",
            problems,
            f"{_of(len(asked), count, 'verdicts')}, {most} at a time, {neighbours} neighbours",
        )

    # Time -------------------------------------------------------------------------------------------------------------

    async def _event_loop(self) -> Check:
        await self._all_outcomes()
        if not self._watch.callbacks:
            return Check("event loop", "none", "only asyncio's own event loop can be measured")
        problems = []
        if self._held_s > MAX_HELD_S:
            problems.append(
                f"{self._held_by}: it is blocked for {self._held_s:.1f} s, and no other request is answered "
                "meanwhile; compute in a `verify` that is not async, or with `self.processes.run`"
            )
        return checked("event loop", problems, f"blocked for {self._held_s * 1000:.0f} ms at most")

    async def _growth(self) -> Check:
        await self._all_outcomes()
        return checked("growth", self._growths, f"work grows with the reply, up to {REPEATED_CHARS[-1]:,} characters")

    async def _repeat(self, token: str, row: GoldRow) -> AsyncIterator[tuple[int, Outcome]]:
        """Verify longer and longer replies that repeat a token, until one takes too long.

        Yields:
            The length of a reply in characters, and its outcome.
        """
        for chars in REPEATED_CHARS:
            outcome, spent_s = await self._repeated(token, chars, row)
            yield chars, outcome
            if spent_s > GROWTH_MIN_S:
                await self._measure_growth(token, chars, row)
            if spent_s > 0.3:
                break

    async def _measure_growth(self, token: str, chars: int, row: GoldRow) -> None:
        """Note a reply that takes far more time than one of a quarter of its length."""
        # Other processes can only slow it down, so the best of several tries is closest to the truth. Short replies are
        # cheap, and a single one is disturbed more easily.
        long_s = min([(await self._repeated(token, chars, row))[1] for _ in range(3)])
        short_s = min([(await self._repeated(token, chars // 4, row))[1] for _ in range(12)])
        if long_s > GROWTH_MIN_S and long_s > 10.0 * short_s:  # quadratic work takes 16 times as long
            self._growths.append(
                f"{row.where}, {token!r} again and again: {long_s:.2f} s of processor time for {chars:,} characters, "
                f"{long_s / short_s:.0f} times as long as for a quarter of them"
            )

    async def _repeated(self, token: str, chars: int, row: GoldRow) -> tuple[Outcome, float]:
        """Return the outcome of a reply that repeats a token, and its processor seconds."""
        return await self._watched(row, repeated(token, chars), f"{row.where}, {token!r} again and again")

    async def _time(self) -> Check:
        await self._all_outcomes()
        slowest = f"at most {self._audited.slowest_s:.2f} s"
        limit_s = self._audited.limit_s
        if limit_s is None:
            return checked("time", [], f"{slowest}; only the rollout's own time limits it")
        problems = []
        if self._audited.slowest_s > limit_s:
            problems.append(f"{self._audited.slowest}: {self._audited.slowest_s:.1f} s, the limit is {limit_s:g} s")
        return checked("time", problems, f"{slowest} of {limit_s:g} s")

    async def _secrets(self) -> Check:
        if not self._audited.has_secrets:
            return Check("secrets", "none", "no option is named like a secret")
        await self._all_outcomes()
        return checked("secrets", self._audited.leaks, "no verdict, tool output, failure or log holds one")


def _of(count: int, total: int, noun: str) -> str:
    """Return a count, with the total if the time was not enough for all."""
    return f"{count:,} {noun}" if count == total else f"{count:,} of {total:,} {noun} (no time for more)"
