"""The checks of an audit. Each looks at one promise that every environment makes."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from typing import Any

import msgspec

from gymq.messages import FailureClass, ToolResult
from gymq.outcomes import RolloutError
from gymq.testing.gold import Action, GoldRow
from gymq.testing.hostile import hostile_replies, repeated, tokens_of
from gymq.testing.report import REPLIES, Check
from gymq.testing.scripts import reply
from gymq.testing.strain import LoopWatch, busy_neighbours
from gymq.testing.trial import Outcome, Trial

MAX_DETAILS = 20
MAX_HELD_S = 1.0  # how long one callback may hold the event loop
REPEATED = "repeated text"
HEAVY = frozenset({REPEATED, "huge", "deep"})  # only for the first row, and once
AT_A_TIME = 16
TRIES = 3  # for a verdict under load; what has no verdict is verified again in a cluster too

REPEATED_CHARS = (4_000, 16_000, 64_000)  # each is four times the one before
GROWTH_ENOUGH_S = 0.3  # longer replies are not tried
GROWTH_TRIES = 3
GROWTH_MIN_S = 0.1  # less is not worth a finding
MAX_GROWTH = 10.0  # of the time, where the reply grows by 4: squared work gives 16

# Failures that are a proper answer to a reply without sense.
_REFUSALS = frozenset({FailureClass.INVALID_TASK, FailureClass.JUDGE_FAILED, FailureClass.COMPONENT_FAILED})

_ODD_VALUES: tuple[Any, ...] = (None, [], {}, "", "x", -1, 2**53, [[[{"a": None}]]], {"a": {"b": [None]}})
_ODD_ARGUMENTS: tuple[Any, ...] = (
    None,
    {},
    [],
    "text",
    -1,
    {"no_such_argument": 1},
    [[[[None]]]],
)

Reply = dict[str, Any] | list[Action]


class Checks:
    """The checks of one environment; `run` gives the outcome of one by its name."""

    def __init__(self, trial: Trial, chosen: Collection[str]) -> None:
        self._trial = trial
        self._chosen = chosen
        self._watch = LoopWatch()
        self._growths: list[str] = []
        self._outcomes: dict[tuple[str, int, str], Outcome] | None = None
        self._by_name: dict[str, Callable[[], Awaitable[Check]]] = {
            "gold": self._gold,
            "malformed rows": self._malformed_rows,
            "same twice": self._same_twice,
            "under load": self._under_load,
            "growth": self._growth,
            "event loop": self._event_loop,
            "an idle session": self._idle_session,
            "tools": self._tools,
            "secrets": self._secrets,
            "time": self._time,
        }

    async def run(self, name: str) -> Check:
        """Run one check.

        Args:
            name: one of `gymq.testing.report.CHECKS`.

        Raises:
            AuditError: it cannot be decided.
        """
        return await (self._replies(name) if name in REPLIES else self._by_name[name]())

    # Replies ----------------------------------------------------------------------------------------------------------

    async def _gold(self) -> Check:
        outcomes = await self._all_outcomes()
        problems = []
        for number, row in enumerate(self._trial.gold):
            found = outcomes["gold", number, ""]
            if found.reward is None or not math.isclose(found.reward, row.reward, abs_tol=1e-6):
                problems.append(f"{row.where}: {found}, expected {row.reward:g}")
        return _check("gold", problems, f"{len(self._trial.gold)} right replies get their reward")

    async def _replies(self, name: str) -> Check:
        outcomes = await self._all_outcomes()
        problems: list[str] = []
        excused: dict[str, None] = {}
        highest = -math.inf
        count = 0
        for (of, number, label), found in outcomes.items():
            row = self._trial.gold[number]
            if of != name:
                continue
            count += 1
            if found.reward is None:
                if found.failure not in _REFUSALS:
                    problems.append(f"{row.where}, {label}: {found}")
            elif found.reward > row.floor + 1e-9:
                if name in row.gold.may_pass:
                    excused[f"{row.where} may reward it: {row.gold.may_pass[name]}"] = None
                else:
                    problems.append(f"{row.where}, {label}: reward {found.reward:g}, no more than {row.floor:g} is due")
            else:
                highest = max(highest, found.reward)
        shown = f", rewards up to {highest:g}" if math.isfinite(highest) else ""
        return _check(name, problems, f"{count} replies{shown}", list(excused))

    async def _all_outcomes(self) -> dict[tuple[str, int, str], Outcome]:
        """Return the outcomes of the replies that were chosen, by name, number of the gold reply and label."""
        if self._outcomes is None:
            outcomes: dict[tuple[str, int, str], Outcome] = {}
            names = [name for name in REPLIES if name in self._chosen]
            if not names and "event loop" in self._chosen:
                names = list(REPLIES)
            with self._watch.watching():
                for of, number, label, said in self._asked(names):
                    row = self._trial.gold[number]
                    self._watch.label = f"{row.where}, {of} {label}".strip()
                    # A task of its own, so that its callbacks are its own and not those of the audit.
                    work = self._trial.outcome(row.row, said, self._watch.label, timed=True)
                    outcomes[of, number, label] = await asyncio.create_task(work)
                if REPEATED in names or "growth" in self._chosen:
                    row = self._trial.gold[0]
                    for token in tokens_of(row):
                        async for chars, outcome in self._repeat(token, row):
                            outcomes[REPEATED, 0, f"{token!r} again and again, {chars:,} characters"] = outcome
            self._outcomes = outcomes
        return self._outcomes

    def _asked(self, names: Collection[str]) -> Iterator[tuple[str, int, str, Reply]]:
        for number, row in enumerate(self._trial.gold):
            yield "gold", number, "", row.gold.actions
            for name in names:
                if name != REPEATED and (number == 0 or name not in HEAVY):
                    for label, said in hostile_replies(name, row):
                        yield name, number, label, said

    # Verdicts that agree ----------------------------------------------------------------------------------------------

    def _light(self) -> list[tuple[str, int, str, Reply]]:
        """The replies that are quickly verified, in the order of their rows."""
        return list(self._asked([name for name in REPLIES if name not in HEAVY]))

    async def _first(self, asked: tuple[str, int, str, Reply]) -> Outcome:
        outcomes = await self._all_outcomes()
        of, number, label, said = asked
        key = of, number, label
        if key not in outcomes:
            outcomes[key] = await self._trial.outcome(self._trial.gold[number].row, said, self._where(asked))
        return outcomes[key]

    def _where(self, asked: tuple[str, int, str, Reply]) -> str:
        of, number, label, _ = asked
        return f"{self._trial.gold[number].where}, {of} {label}".strip()

    async def _same_twice(self) -> Check:
        if not self._trial.author.deterministic:
            # What it says of itself; its gold replies still have to be right each time.
            asked = [one for one in self._light() if one[0] == "gold"]
        else:
            asked = self._light()
        problems = []
        for one in reversed(asked):  # in another order than before: what was verified before must not matter
            before = await self._first(one)
            again = await self._trial.outcome(self._trial.gold[one[1]].row, one[3], self._where(one))
            if again.reward != before.reward:
                problems.append(f"{self._where(one)}: first {before}, then {again}")
        return _check("same twice", problems, f"{len(asked)} verdicts are the same when asked again")

    async def _under_load(self) -> Check:
        asked = self._light()
        if not self._trial.author.deterministic:
            asked = [one for one in asked if one[0] == "gold"] * 4
        before = [await self._first(one) for one in asked]
        slots = asyncio.Semaphore(AT_A_TIME)

        async def again(one: tuple[str, int, str, Reply], wanted: Outcome) -> Outcome:
            async with slots:
                for _ in range(TRIES):
                    found = await self._trial.outcome(self._trial.gold[one[1]].row, one[3], self._where(one))
                    if found.reward is not None or wanted.reward is None:
                        break
                return found

        neighbours = os.cpu_count() or 1
        with busy_neighbours(neighbours):
            after = await asyncio.gather(*map(again, asked, before))
        problems = [
            f"{self._where(one)}: alone {first}, under load {second}"
            for one, first, second in zip(asked, before, after, strict=True)
            if first.reward != second.reward
        ]
        return _check("under load", problems, f"{len(asked)} verdicts, {AT_A_TIME} at a time, {neighbours} neighbours")

    # Time -------------------------------------------------------------------------------------------------------------

    async def _event_loop(self) -> Check:
        await self._all_outcomes()
        if not self._watch.callbacks:
            return Check("event loop", "none", "only asyncio's own event loop can be measured")
        problems = []
        if self._watch.longest_s > MAX_HELD_S:
            problems.append(
                f"{self._watch.during}: it is held for {self._watch.longest_s:.1f} s, and nothing else is answered "
                "meanwhile; compute in a `verify` that is not async, or with `self.processes.run`"
            )
        return _check("event loop", problems, f"held for {self._watch.longest_s * 1000:.0f} ms at most")

    async def _growth(self) -> Check:
        await self._all_outcomes()
        return _check("growth", self._growths, f"work grows with the reply, up to {REPEATED_CHARS[-1]:,} characters")

    async def _repeat(self, token: str, row: GoldRow) -> AsyncIterator[tuple[int, Outcome]]:
        """Verify longer and longer replies that repeat a token, as long as they are quickly verified.

        Yields:
            The length of a reply in characters, and its outcome.
        """
        before_s = 0.0
        for chars in REPEATED_CHARS:
            outcome, spent_s = await self._repeated(token, chars, row)
            yield chars, outcome
            if spent_s > GROWTH_MIN_S and (chars == REPEATED_CHARS[0] or spent_s > MAX_GROWTH * before_s):
                await self._measure_growth(token, chars, row)
            if spent_s > GROWTH_ENOUGH_S:
                break
            before_s = spent_s

    async def _measure_growth(self, token: str, chars: int, row: GoldRow) -> None:
        """Note it if a reply takes far more time than one of a quarter of its length."""
        # Neighbours can only make it slower, so the best of some tries is closest to the truth.
        long_s = min([(await self._repeated(token, chars, row))[1] for _ in range(GROWTH_TRIES)])
        short_s = min([(await self._repeated(token, chars // 4, row))[1] for _ in range(GROWTH_TRIES)])
        if long_s > GROWTH_MIN_S and long_s > MAX_GROWTH * short_s:
            self._growths.append(
                f"{row.where}, {token!r} again and again: {long_s:.2f} s of the event loop for {chars:,} characters, "
                f"{long_s / short_s:.0f} times as long as for a quarter of them"
            )

    async def _repeated(self, token: str, chars: int, row: GoldRow) -> tuple[Outcome, float]:
        """Return the outcome of a reply that repeats a token, and the seconds that this thread computed for it."""
        self._watch.label = f"{row.where}, {token!r} again and again"
        before = time.thread_time()
        work = self._trial.outcome(row.row, repeated(token, chars), self._watch.label, timed=True)
        outcome = await asyncio.create_task(work)
        return outcome, time.thread_time() - before

    async def _time(self) -> Check:
        await self._all_outcomes()
        slowest = f"at most {self._trial.slowest_s:.2f} s"
        limit_s = self._trial.limit_s
        if limit_s is None:
            return _check("time", [], f"{slowest}; only the rollout's own time limits it")
        problems = []
        if self._trial.slowest_s > limit_s:
            problems.append(f"{self._trial.slowest}: {self._trial.slowest_s:.1f} s, the limit is {limit_s:g} s")
        return _check("time", problems, f"{slowest} of {limit_s:g} s")

    # Rows, sessions, tools, secrets -----------------------------------------------------------------------------------

    async def _malformed_rows(self) -> Check:
        row = self._trial.gold[0]
        problems = []
        count = 0
        for label, odd in self._odd_rows(row.row):
            count += 1
            found = await self._trial.outcome(odd, reply(""), f"{row.where}, {label}")
            if found.reward is None and found.failure not in _REFUSALS:
                problems.append(f"{row.where}, {label}: {found}; a row that does not fit ends as invalid_task")
        return _check("malformed rows", problems, f"{count} rows are refused or verified")

    def _odd_rows(self, row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        author = self._trial.author
        for field in {**author.row_type.model_fields, **author.seed_row_type.model_fields}:
            yield f"without `{field}`", {name: value for name, value in row.items() if name != field}
            for value in _ODD_VALUES:
                yield f"`{field}` is {value!r:.40}", {**row, field: value}

    async def _idle_session(self) -> Check:
        author = self._trial.author
        if not author.stateful:
            return Check("an idle session", "none", "it keeps no state")
        problems = []
        for number, row in enumerate(self._trial.gold):
            other = self._trial.gold[(number + 1) % len(self._trial.gold)]
            problems += await self._beside(row, other)
        return _check(
            "an idle session", problems, f"{len(self._trial.gold)} sessions beside busy ones keep their state"
        )

    async def _beside(self, row: GoldRow, other: GoldRow) -> list[str]:
        """Compare the verdicts of a session that did nothing and one that did all, each beside another."""
        silent = reply("")
        alone = await self._trial.outcome(row.row, silent, f"{row.where}, an idle session alone")
        try:
            async with self._trial.session(row.row) as idle, self._trial.session(row.row) as right:
                for busy_row in (other, row):
                    async with self._trial.session(busy_row.row) as busy:
                        played = await self._trial.play(busy_row.gold.actions, busy, f"{busy_row.where}, busy")
                        await self._trial.verified(busy, busy_row.row, played, f"{busy_row.where}, busy")
                beside = await self._trial.verified(idle, row.row, silent, f"{row.where}, idle")
                played = await self._trial.play(row.gold.actions, right, f"{row.where}, beside")
                earned = await self._trial.verified(right, row.row, played, f"{row.where}, beside")
        except RolloutError as error:
            return [f"{row.where}: {error.failure_class}: {error.message}"]
        problems = []
        if beside.reward != alone.reward:
            problems.append(f"{row.where}: a session that did nothing has {alone}, beside a busy one {beside}")
        if earned.reward is None or not math.isclose(earned.reward, row.reward, abs_tol=1e-6):
            problems.append(f"{row.where}: the gold reply after that of another session has {earned}")
        return problems

    async def _tools(self) -> Check:
        row = self._trial.gold[0]
        if not self._trial.has_tools:
            return Check("tools", "none", "it has no tools")
        names = sorted({*self._trial.author.tools, *row.tool_names})
        problems, notes = [], []
        for name in names:
            for arguments in (*_ODD_ARGUMENTS, *self._odd_arguments(name)):
                where = f"{name}({msgspec.json.encode(arguments).decode()[:60]})"
                try:
                    async with self._trial.session(row.row) as session:
                        found = await self._trial.call(session, name, arguments, where)
                except RolloutError as error:
                    problems.append(f"{where}: {error.failure_class}: {error.message}")
                    continue
                if isinstance(found, ToolResult) and found.status == 500:
                    notes.append(f"{where}: {found.output[:200]}")  # the model reads it, and the rollout goes on
                elif isinstance(found, RolloutError) and found.failure_class not in _REFUSALS:
                    problems.append(f"{where}: {found.failure_class}: {found.message}")
        return _check("tools", problems, f"{len(names)} tools answer odd arguments", notes)

    def _odd_arguments(self, name: str) -> Iterator[dict[str, Any]]:
        tool = self._trial.author.tools.get(name)
        fields = () if tool is None else tuple(tool.arguments.model_fields)
        for value in _ODD_VALUES if fields else ():
            yield dict.fromkeys(fields, value)

    async def _secrets(self) -> Check:
        if not self._trial.has_secrets:
            return Check("secrets", "none", "no option is called like a secret")
        await self._all_outcomes()
        return _check("secrets", self._trial.leaks, "no verdict, tool output, failure or log holds one")


def _check(name: str, problems: list[str], summary: str, notes: list[str] | None = None) -> Check:
    if problems:
        return Check(name, "failed", f"{len(problems)} problems", problems[:MAX_DETAILS])
    return Check(name, "ok", summary, (notes or [])[:MAX_DETAILS])
