"""Rollouts of one prompt that wait for each other, to be scored as a group.

Comparisons begin as soon as both answers are there. A group is scored when it is full and all comparisons are back, or
when its time is over, with those that came.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gymq.workers.resources.genrm_compare.aggregation import Answer, Comparison

import gymq

Strategy = Literal["circular", "all_pairs"]
Pair = tuple[int, int]

Compare = Callable[[Pair, Answer, Answer], Coroutine[Any, Any, list[Comparison]]]
"""Compares two answers, by as many judges as there are."""

Score = Callable[[Sequence[Answer], list[Comparison]], list[gymq.Verdict]]
"""The verdicts on a group of answers."""

MOST_REMEMBERED = 20_000  # verdicts, for callers that ask again because a reply was lost


@dataclass(frozen=True)
class Member:
    """One answer in a group.

    Attributes:
        rollout: whose it is; equal for all attempts at a rollout.
    """

    rollout: Hashable
    answer: Answer

    @property
    def digest(self) -> Hashable:
        """Short, and the same for the same answer to the same rollout."""
        return (self.rollout, hashlib.sha256(repr(self.answer).encode(errors="replace")).digest())


class Cohort:
    """One group, from its first member to its verdicts."""

    def __init__(self, size: int, strategy: Strategy, compare: Compare, score: Score) -> None:
        self.members: list[Member] = []
        self.is_open = True  # takes members in
        self._size = size
        self._strategy = strategy
        self._compare = compare
        self._score = score
        self._comparing: dict[Pair, asyncio.Task[list[Comparison]]] = {}
        self._full = asyncio.Event()

    def add(self, member: Member) -> None:
        """Add a member; a new answer to a known rollout replaces the old one."""
        for place, present in enumerate(self.members):
            if present.rollout == member.rollout:
                if present != member:
                    self._replace(place, member)
                return
        self.members.append(member)
        self._begin(pairs_with(len(self.members) - 1, self._strategy))
        if len(self.members) == self._size:
            self._begin(all_pairs(self._size, self._strategy))
            self.is_open = False
            self._full.set()

    async def gather(self, limit_s: float) -> None:
        """Wait until the group is full or its time is over.

        Raises:
            JudgeFailed: it has one member only.
        """
        try:
            async with asyncio.timeout(limit_s):
                await self._full.wait()
        except TimeoutError:
            self.is_open = False
            if len(self.members) < 2:
                raise gymq.JudgeFailed(
                    f"no other rollout of this prompt came to be compared within {limit_s:g} s: each prompt needs "
                    f"{self._size} rollouts at the same time, and one process that serves them all"
                ) from None
            self._begin(all_pairs(len(self.members), self._strategy))

    async def judge(self) -> list[gymq.Verdict]:
        """Return the verdicts on its members, in their order.

        Raises:
            JudgeFailed: the reward model could not be asked a single time.
        """
        pairs = all_pairs(len(self.members), self._strategy)
        comparisons = [comparison for pair in pairs for comparison in await self._comparing[pair]]
        return self._score([member.answer for member in self.members], comparisons)

    def stop(self) -> None:
        """Cancel the unfinished comparisons."""
        for task in self._comparing.values():
            task.cancel()

    def _replace(self, place: int, member: Member) -> None:
        self.members[place] = member
        again = [pair for pair in self._comparing if place in pair]
        for pair in again:
            self._comparing.pop(pair).cancel()
        self._begin(again)

    def _begin(self, pairs: Sequence[Pair]) -> None:
        """Begin those comparisons that have not begun."""
        for pair in pairs:
            if pair not in self._comparing:
                first, second = (self.members[place].answer for place in pair)
                self._comparing[pair] = asyncio.create_task(self._compare(pair, first, second))


@dataclass(frozen=True)
class _Running:
    cohort: Cohort
    verdicts: asyncio.Task[list[gymq.Verdict]]


class Cohorts:
    """The groups of one process."""

    def __init__(self, limit_s: float) -> None:
        """
        Args:
            limit_s: seconds that a group waits for its members, from the first one on.
        """
        self._limit_s = limit_s
        self._running: defaultdict[Hashable, list[_Running]] = defaultdict(list)
        self._remembered: OrderedDict[Hashable, gymq.Verdict] = OrderedDict()

    async def verdict(self, key: Hashable, member: Member, make: Callable[[], Cohort]) -> gymq.Verdict:
        """Return the verdict on a member of a group `key`, once the group is scored.

        Args:
            make: makes a group, if none takes members in.

        Raises:
            JudgeFailed: there is none.
        """
        remembered = self._remembered.get((key, member.digest))
        if remembered is not None:
            return remembered
        running = self._with(key, member) or self._begin(key, make())
        if running.cohort.is_open:
            running.cohort.add(member)
        # A caller that stops waiting does not affect the others: its answer stays in the group.
        verdicts = await asyncio.shield(running.verdicts)
        for present, verdict in zip(running.cohort.members, verdicts, strict=True):
            if present == member:
                return verdict
        raise gymq.JudgeFailed("another attempt at this rollout took its place in the group")

    def _with(self, key: Hashable, member: Member) -> _Running | None:
        """Return the group that has the member already, or that takes it in."""
        groups = self._running.get(key, ())
        return next((group for group in groups if member in group.cohort.members or group.cohort.is_open), None)

    def _begin(self, key: Hashable, cohort: Cohort) -> _Running:
        running = _Running(cohort, asyncio.create_task(self._run(key, cohort)))
        self._running[key].append(running)
        running.verdicts.add_done_callback(lambda _: self._forget(key, running))
        return running

    def _forget(self, key: Hashable, running: _Running) -> None:
        self._running[key].remove(running)
        if not self._running[key]:
            del self._running[key]

    async def _run(self, key: Hashable, cohort: Cohort) -> list[gymq.Verdict]:
        try:
            await cohort.gather(self._limit_s)
            verdicts = await cohort.judge()
        finally:
            cohort.stop()
        for member, verdict in zip(cohort.members, verdicts, strict=True):
            self._remembered[key, member.digest] = verdict
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        return verdicts

    def stop(self) -> None:
        """Cancel all groups."""
        for groups in self._running.values():
            for running in groups:
                running.verdicts.cancel()


def pairs_with(newest: int, strategy: Strategy) -> list[Pair]:
    """Return the pairs of an answer with those before it that can be compared as soon as it is there."""
    if strategy == "all_pairs":
        return [(earlier, newest) for earlier in range(newest)]
    return [(newest - 1, newest)] if newest else []


def all_pairs(size: int, strategy: Strategy) -> list[Pair]:
    """Return all pairs of a group, in order.

    In a circle each answer is once the first and once the second of a pair.
    """
    pairs = [pair for newest in range(size) for pair in pairs_with(newest, strategy)]
    if strategy == "all_pairs":
        return sorted(pairs)
    return [*pairs, (size - 1, 0)]
