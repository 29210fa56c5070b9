"""Form batches for a trainer that trains while rollouts run: which may begin, and which make up the next batch.

Time is counted in batches that were given out. Of groups that were submitted and are not trained on yet there are never
more than those of `ahead` + 1 batches. A batch takes the oldest that are complete, and waits for older ones if those
that it leaves would not all fit into the batches until `max_staleness` batches after they began. So no rollout is
thrown away for its length. A group begins when an agent takes the first of its rollouts: while it waits in the queue,
the policy that it will begin with is not yet known to be old. Source: section 5.1 of "AReaL", arXiv:2505.24298.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from gymq.data.rows import TASK_INDEX
from gymq.errors import UsageError
from gymq.trainer.batch import Batch
from gymq.trainer.evaluating import Evaluations
from gymq.trainer.groups import Group, Row
from gymq.trainer.options import BatchOptions
from gymq.trainer.training_batch import TrainingBatch

log = logging.getLogger("gymq.trainer")


@dataclass(eq=False)
class _Place:
    """A place in a later batch.

    Attributes:
        begun: batches that were trained on when it began, or fewer.
        index: of its row.
        group: None if there were no more rows, or too little is left of a group that was cut.
        rollouts: of the group.
    """

    begun: int
    index: int
    row: Row
    group: asyncio.Task[Group | None] | None = None
    rollouts: Batch | None = None
    is_cut: bool = False

    @property
    def is_filled(self) -> bool:
        return self.group is not None and self.group.done()

    @property
    def result(self) -> Group | None:
        """What a place that is filled is filled with."""
        assert self.group is not None
        return self.group.result()

    @property
    def num_tokens(self) -> int:
        return 0 if self.result is None else self.result.num_sampled_tokens

    def cut(self) -> None:
        """Cancel the rollouts that are under way."""
        self.is_cut = True
        if self.rollouts is not None:
            self.rollouts.cut()


@dataclass
class _Counts:
    """Groups that went no usual way, since the last batch."""

    failed_groups: int = 0
    without_variance: int = 0
    stale_groups: int = 0
    cut_groups: int = 0
    dropped_tokens: int = 0


class Batches:
    """The batches of a training, on the event loop of its connection."""

    def __init__(
        self,
        rows: Iterable[Row],
        options: BatchOptions,
        run_rollouts: Callable[..., Batch],
        updates_since: Callable[[], Awaitable[Callable[[str], int]]],
        not_begun: Callable[[], Awaitable[set[int]]],
        evaluations: Evaluations | None,
    ) -> None:
        self._evaluations = evaluations
        self._run_rollouts = run_rollouts
        self._updates_since = updates_since
        self._not_begun = not_begun
        self._options = options
        state = options.state or {"step": 0, "next": 0, "waiting": []}
        self._step = int(state["step"])  # batches that were given out
        self._trained = self._step  # batches that were trained on
        self._next = int(state["next"])  # position in the rows
        self._coming = enumerate(_in_order(rows, options.seed, options.epochs))
        waiting: dict[int, int] = dict(state["waiting"])
        passed = {index: row for index, row in islice(self._coming, self._next) if index in waiting}
        if len(passed) < len(waiting):
            raise UsageError("state: it was saved with more rows than there are; give the same rows as before")
        self._places = [_Place(waiting[index], index, passed[index]) for index in waiting]
        self._given_up: list[_Place] = []
        self._groups_of_batch = options.groups  # that the next ones are expected to have
        self._counts = _Counts()
        self._has_discarded = False
        self._replaced_in_a_row = 0

    async def formed(self) -> AsyncGenerator[TrainingBatch, None]:
        """Yield batches. Asking for the next one says that the one before was trained on."""
        try:
            while True:
                asked = time.monotonic()
                self._trained = self._step
                await self._note_begun()
                self._begin()
                if self._evaluations is not None:
                    self._evaluations.begin(self._step)
                while (chosen := await self._wait_for_batch()) and (stale := await self._stale(chosen)):
                    self._discard(stale)
                    self._begin()
                if not chosen:
                    return
                self._places = [place for place in self._places if place not in chosen]
                self._step += 1
                yield await self._batch(chosen, time.monotonic() - asked)
        finally:
            if self._evaluations is not None:
                await self._evaluations.stop()
            places = [*self._places, *self._given_up]
            waited_for = [place.group for place in places if place.group is not None]
            for group in waited_for:
                group.cancel()
            await asyncio.gather(*waited_for, return_exceptions=True)

    async def _note_begun(self) -> None:
        """Note which groups still wait in the queue, and discard those that began too long ago."""
        waiting = await self._not_begun()
        for place in self._places:
            if place.index in waiting:
                place.begun = self._trained
        if self._options.on_stale == "discard":
            self._discard([place for place in self._places if self._step - place.begun > self._options.num_behind])

    def _begin(self) -> None:
        """Begin as many groups as may be under way."""
        num_missing = (self._options.ahead + 1) * self._groups_of_batch - len(self._places)
        self._places += [_Place(self._trained, *found) for found in self._take(max(0, num_missing))]
        for place in self._places:
            if place.group is None:
                place.group = asyncio.create_task(self._fill(place))

    def _take(self, count: int) -> list[tuple[int, Row]]:
        """Return so many of the next rows, or the best of their candidates, with their positions; fewer at the end."""
        part, parts = self._options.share
        ours = ((index, {**row}) for index, row in self._coming if index % parts == part)
        candidates = list(islice(ours, count * self._options.candidates))
        if candidates:
            self._next = candidates[-1][0] + 1
        if self._options.known is None:
            return candidates
        best = self._options.known.most_informative([row for _, row in candidates], count)
        indices = {id(row): index for index, row in candidates}
        return [(indices[id(row)], row) for row in best]

    async def _stale(self, chosen: Sequence[_Place]) -> list[_Place]:
        """Return the groups that are to be discarded, by the versions that their samples have."""
        if self._options.on_stale != "discard":
            return []
        behind = await self._updates_since()
        return [
            place
            for place in chosen
            if (group := place.result) is not None and group.num_behind(behind) > self._options.num_behind
        ]

    def _discard(self, stale: Sequence[_Place]) -> None:
        """Throw groups away, and cancel what is under way of them."""
        if stale and not self._has_discarded:
            log.warning(
                "on_stale='discard': %d groups took longer than %d updates and are thrown away, so the policy is "
                "trained on short rollouts more often than on long ones; 'train' and 'mask' wait for them",
                len(stale),
                self._options.num_behind,
            )
        self._has_discarded |= bool(stale)
        self._counts.stale_groups += len(stale)
        self._places = [place for place in self._places if place not in stale]
        self._given_up = [place for place in self._given_up if not place.is_filled]
        for place in stale:
            if place.is_filled:
                self._counts.dropped_tokens += place.num_tokens
            else:
                place.cut()
                self._given_up.append(place)

    async def _fill(self, place: _Place) -> Group | None:
        """Return a group that can be trained on, of other rows if that of the place gives none."""
        while True:
            group = await self._roll_out(place)
            if self._options.known is not None:
                self._options.known.add(group)
            if place.is_cut:
                return group if len(group.samples) > 1 else None
            if not self._is_replaced(group):
                return group
            self._counts.dropped_tokens += group.num_sampled_tokens
            if not (found := self._take(1)):
                return None
            place.begun, ((place.index, place.row),) = self._trained, found

    async def _roll_out(self, place: _Place) -> Group:
        """Return the group of a place; one that does not vary may have its first samples only."""
        options = self._options
        example = {**place.row, TASK_INDEX: place.index}
        settings = {**options.rollouts, "on_failed_group": options.on_failed_group}
        if options.first is not None:
            # A surplus is cut for good, and the rest of the group with it.
            place.rollouts = self._run_rollouts(
                [example], **settings | {"num_samples": options.first, "num_surplus": 0}
            )
            (group,) = [one async for one in place.rollouts]
            if not group.is_varied or place.is_cut:
                return group
        place.rollouts = self._run_rollouts([example], **settings, num_samples=options.num_samples)
        (group,) = [one async for one in place.rollouts]
        return group

    def _is_replaced(self, group: Group) -> bool:
        """Count a group, and return whether another takes its place."""
        is_varied = group.is_varied
        self._counts.failed_groups += not group.is_complete
        self._counts.without_variance += not is_varied
        is_replaced = (self._options.varied and not is_varied) or (
            self._options.on_failed_group == "refill" and not group.is_complete
        )
        self._replaced_in_a_row = self._replaced_in_a_row + 1 if is_replaced else 0
        if self._replaced_in_a_row > 16 * self._options.groups:
            why = "all its rewards are the same" if group.is_complete else group.why_incomplete()
            raise UsageError(f"{self._replaced_in_a_row} groups in a row could not be trained on; the last: {why}")
        return is_replaced

    async def _wait_for_batch(self) -> Sequence[_Place]:
        """Wait for the groups of a batch, the oldest first, and for all that may not become older."""
        while True:
            self._places.sort(key=lambda place: place.begun)
            filled = [place for place in self._places if place.is_filled]
            self._places = [place for place in self._places if place not in filled or place.result is not None]
            filled = [place for place in self._places if place.is_filled]
            missing = [place for place in self._places if not place.is_filled]
            if not missing:
                return self._enough(filled) or filled[: self._options.groups]
            if chosen := self._enough(filled):
                return chosen
            if self._options.straggler_share < 1.0:
                self._cut_stragglers(len(filled), missing)
            await asyncio.wait([place.group for place in missing if place.group], return_when=asyncio.FIRST_COMPLETED)

    def _cut_stragglers(self, num_filled: int, missing: Sequence[_Place]) -> None:
        """Cut what the next batch must wait for, if the share of it is complete that is waited for."""
        if num_filled < self._options.straggler_share * self._options.groups:
            return
        for place in missing:
            if self._step - place.begun >= self._options.num_behind and not place.is_cut:
                place.cut()
                self._counts.cut_groups += 1

    def _enough(self, filled: Sequence[_Place]) -> Sequence[_Place]:
        """Return the oldest groups that make up a batch, as few as the token budget needs; none: there are too few."""
        budget = self._options.token_budget
        chosen: list[_Place] = []
        num_tokens = 0
        for place in filled[: self._options.groups]:
            chosen.append(place)
            num_tokens += place.num_tokens if budget is not None else 0
            is_full = len(chosen) == self._options.groups or (budget is not None and num_tokens >= budget)
            if is_full and self._leaves_time(chosen):
                return chosen
        return []

    def _leaves_time(self, chosen: Sequence[_Place]) -> bool:
        """Return whether those that a batch leaves fit into the batches until they are too old."""
        if self._options.on_stale == "discard":
            return True
        num_left = 0
        for place in self._places:  # the oldest first
            num_left += place not in chosen
            batches_left = max(0, self._options.num_behind - (self._step - place.begun))
            if num_left > batches_left * self._options.groups:
                return False
        return True

    async def _batch(self, chosen: Sequence[_Place], wait_s: float) -> TrainingBatch:
        if self._options.token_budget is not None:
            num_tokens = max(1, sum(place.num_tokens for place in chosen))
            by_tokens = math.ceil(self._options.token_budget * len(chosen) / num_tokens)
            self._groups_of_batch = min(self._options.groups, by_tokens)
        collected = {
            "wait_s": wait_s,
            **{name: float(count) for name, count in vars(self._counts).items()},
            **({} if self._evaluations is None else self._evaluations.take()),
        }
        self._counts = _Counts()
        waiting = [[place.index, place.begun] for place in self._places]
        return TrainingBatch(
            groups=[group for place in chosen if (group := place.result) is not None],
            step=self._step - 1,
            state={"step": self._step, "next": self._next, "waiting": waiting},
            max_staleness=self._options.num_behind,
            mask_stale=self._options.on_stale == "mask",
            updates_since=await self._updates_since(),
            collected=collected,
        )


def _in_order(rows: Iterable[Row], seed: int | None, epochs: int | None) -> Iterator[Row]:
    """Yield rows: those of a list again and again, each time in another order; those of an iterator once."""
    if not isinstance(rows, Sequence):
        yield from rows
        return
    for epoch in itertools.count() if epochs is None and rows else range(epochs or 0):
        order = list(range(len(rows)))
        if seed is not None:
            random.Random(f"{seed}/{epoch}").shuffle(order)
        yield from (rows[at] for at in order)
