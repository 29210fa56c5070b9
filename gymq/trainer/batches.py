"""Form batches for a trainer that trains while rollouts run: which may begin, and which make up the next batch.

Time is counted in batches that were given out. Of groups that have begun and are not trained on yet there are never
more than those of `ahead` + 1 batches. A batch takes the oldest that are complete, and waits for older ones if those
that it leaves would not all fit into the batches until `max_staleness` batches after they began. So no rollout is
thrown away for its length. Source: section 5.1 of "AReaL", arXiv:2505.24298.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, Literal, Protocol

from gymq.data.rows import TASK_INDEX
from gymq.trainer.evaluating import Evaluations
from gymq.trainer.groups import Batch, Group, OnFailedGroup, Row, TrainerError
from gymq.trainer.training_batch import TrainingBatch

REPLACED_IN_A_ROW = 16  # times the groups of a batch, before it is an error


class Known(Protocol):
    """What is known of rows: `gymq.trainer.sampling.Difficulties`."""

    def add(self, group: Group) -> None: ...

    def most_informative(self, examples: Iterable[Row], count: int) -> list[Row]: ...


@dataclass(frozen=True)
class BatchOptions:
    """How batches are made.

    Attributes:
        groups: of a batch.
        num_samples: rollouts of a group.
        ahead: batches whose rollouts are under way while another is trained on; 0: none, so all data are on-policy.
        max_staleness: batches after its own start that a group is trained on at the latest, at least `ahead`; None:
            `ahead`.
        on_stale: `train` on tokens that are further behind all the same, with their versions, or `mask` them; there
            are some only if the trainer went back or weights are pushed more often than once a batch.
        on_failed_group: of a group that lacks samples: `refill` starts as many more as failed, and then a group of
            another row in its place; `mask` trains on what there is; `raise` makes it an error.
        varied: give groups whose samples all have the same reward no place; those of other rows take it.
        known: counts all groups, and chooses of each `candidates` rows the one whose rewards vary most.
        candidates: rows that one is chosen from.
        seed: of the order of a list of rows in each epoch; None: as they are.
        epochs: how often a list of rows is gone through; None: without an end.
        evaluate_every: batches from one evaluation to the next, which runs beside the training; None: there are none.
        evaluation_rows: rows of an evaluation.
        evaluation_samples: rollouts of each of them.
        share: which part of the rows is for this process, for example (0, 2) for the first of two.
        state: of the batch after which to go on; None: from the start.
        rollouts: further options of `run_rollouts`.
    """

    groups: int
    num_samples: int
    ahead: int = 1
    max_staleness: int | None = None
    on_stale: Literal["train", "mask"] = "train"
    on_failed_group: OnFailedGroup = "refill"
    varied: bool = False
    known: Known | None = None
    candidates: int = 1
    seed: int | None = 0
    epochs: int | None = None
    evaluate_every: int | None = None
    evaluation_rows: Sequence[Row] = ()
    evaluation_samples: int = 1
    share: tuple[int, int] = (0, 1)
    state: dict[str, Any] | None = None
    rollouts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, **options: Any) -> BatchOptions:
        """Return the options of which those that are not of batches are of `run_rollouts`."""
        ours = {one.name: options.pop(one.name) for one in fields(cls) if one.name in options}
        return cls(**ours, rollouts=options)

    def __post_init__(self) -> None:
        if self.groups < 1 or self.num_samples < 1 or self.candidates < 1:
            raise TrainerError("groups, num_samples and candidates must be at least 1")
        if self.ahead < 0 or (self.max_staleness is not None and self.max_staleness < self.ahead):
            raise TrainerError(
                f"ahead={self.ahead}, max_staleness={self.max_staleness}: what is made that far ahead is that old"
            )
        if self.evaluate_every is not None and (self.evaluate_every < 1 or not self.evaluation_rows):
            raise TrainerError("evaluate_every must be at least 1, and needs `evaluation_rows`")
        if self.candidates > 1 and self.known is None:
            raise TrainerError("candidates: nothing is known to choose by; give `known=Difficulties()` too")
        if not 0 <= self.share[0] < self.share[1]:
            raise TrainerError(f"share={self.share}: expected a part and how many there are, such as (0, 2)")


@dataclass(eq=False)
class _Place:
    """A place in a later batch.

    Attributes:
        begun: batches that were given out when it began.
        index: of its row.
        group: None if there were no more rows.
    """

    begun: int
    index: int
    row: Row
    group: asyncio.Task[Group | None] | None = None

    @property
    def is_filled(self) -> bool:
        return self.group is not None and self.group.done()


class Batches:
    """The batches of a training, on the event loop of its connection."""

    def __init__(
        self,
        rows: Iterable[Row],
        options: BatchOptions,
        run_rollouts: Callable[..., Batch],
        updates_since: Callable[[], Awaitable[Callable[[str], int]]],
        evaluations: Evaluations | None,
    ) -> None:
        self._evaluations = evaluations
        self._run_rollouts = run_rollouts
        self._updates_since = updates_since
        self._options = options
        self._max_staleness = options.ahead if options.max_staleness is None else options.max_staleness
        state = options.state or {"step": 0, "next": 0, "waiting": []}
        self._step = int(state["step"])  # batches that were given out
        self._next = int(state["next"])  # position in the rows
        self._coming = enumerate(_in_order(rows, options.seed, options.epochs))
        waiting: dict[int, int] = dict(state["waiting"])
        passed = {index: row for index, row in islice(self._coming, self._next) if index in waiting}
        if len(passed) < len(waiting):
            raise TrainerError("state: it was saved with more rows than there are; give the same rows as before")
        self._places = [_Place(waiting[index], index, passed[index]) for index in waiting]
        self._num_failed = self._num_without_variance = 0  # groups, since the last batch
        self._replaced_in_a_row = 0

    async def formed(self) -> AsyncGenerator[TrainingBatch, None]:
        """Yield batches. Asking for the next one says that the one before was trained on.

        Raises:
            TrainerError, RowError, BusError: as `run_rollouts` does.
        """
        try:
            while True:
                asked = time.monotonic()
                self._begin()
                if self._evaluations is not None:
                    self._evaluations.begin(self._step)
                chosen = await self._wait_for_batch()
                if not chosen:
                    return
                self._places = [place for place in self._places if place not in chosen]
                self._step += 1
                yield await self._batch(chosen, time.monotonic() - asked)
        finally:
            if self._evaluations is not None:
                await self._evaluations.stop()
            waited_for = [place.group for place in self._places if place.group is not None]
            for group in waited_for:
                group.cancel()
            await asyncio.gather(*waited_for, return_exceptions=True)

    def _begin(self) -> None:
        """Begin as many groups as may be under way."""
        while len(self._places) < (self._options.ahead + 1) * self._options.groups and (found := self._take()):
            self._places.append(_Place(self._step, *found))
        for place in self._places:
            if place.group is None:
                place.group = asyncio.create_task(self._fill(place))

    def _take(self) -> tuple[int, Row] | None:
        """Return the next row, or the best of the next candidates, with its position; None at the end."""
        part, parts = self._options.share
        ours = ((index, row) for index, row in self._coming if index % parts == part)
        candidates = list(islice(ours, self._options.candidates))
        if not candidates:
            return None
        self._next = candidates[-1][0] + 1
        if self._options.known is None:
            return candidates[0]
        (best,) = self._options.known.most_informative([row for _, row in candidates], 1)
        return next((index, row) for index, row in candidates if row is best)

    async def _fill(self, place: _Place) -> Group | None:
        """Return a group that can be trained on, of other rows if that of the place gives none."""
        options = self._options
        settings = {**options.rollouts, "num_samples": options.num_samples, "on_failed_group": options.on_failed_group}
        while True:
            example = {**place.row, TASK_INDEX: place.index}
            (group,) = [one async for one in self._run_rollouts([example], **settings)]
            if options.known is not None:
                options.known.add(group)
            if not self._is_replaced(group):
                return group
            if (found := self._take()) is None:
                return None
            place.index, place.row = found

    def _is_replaced(self, group: Group) -> bool:
        """Count a group, and return whether another takes its place."""
        is_varied = group.is_varied
        self._num_failed += not group.is_complete
        self._num_without_variance += not is_varied
        is_replaced = (self._options.varied and not is_varied) or (
            self._options.on_failed_group == "refill" and not group.is_complete
        )
        self._replaced_in_a_row = self._replaced_in_a_row + 1 if is_replaced else 0
        if self._replaced_in_a_row > REPLACED_IN_A_ROW * self._options.groups:
            why = "all its rewards are the same" if group.is_complete else group.why_incomplete()
            raise TrainerError(f"{self._replaced_in_a_row} groups in a row could not be trained on; the last: {why}")
        return is_replaced

    async def _wait_for_batch(self) -> list[_Place]:
        """Wait for the groups of a batch, the oldest first, and for all that may not become older."""
        while True:
            filled = [place for place in self._places if place.is_filled]
            self._places = [place for place in self._places if place not in filled or _result(place) is not None]
            filled = [place for place in self._places if place.is_filled]
            missing = [place for place in self._places if not place.is_filled]
            chosen = filled[: self._options.groups]
            if not missing or (len(filled) >= self._options.groups and self._leaves_time(chosen)):
                return chosen
            await asyncio.wait([place.group for place in missing if place.group], return_when=asyncio.FIRST_COMPLETED)

    def _leaves_time(self, chosen: Sequence[_Place]) -> bool:
        """Return whether those that a batch leaves fit into the batches until they are too old."""
        num_left = 0
        for place in self._places:  # the oldest first
            num_left += place not in chosen
            batches_left = max(0, self._max_staleness - (self._step - place.begun))
            if num_left > batches_left * self._options.groups:
                return False
        return True

    async def _batch(self, chosen: Sequence[_Place], wait_s: float) -> TrainingBatch:
        collected = {
            "wait_s": wait_s,
            "failed_groups": float(self._num_failed),
            "without_variance": float(self._num_without_variance),
            **({} if self._evaluations is None else self._evaluations.take()),
        }
        self._num_failed = self._num_without_variance = 0
        waiting = [[place.index, place.begun] for place in self._places]
        return TrainingBatch(
            groups=[group for place in chosen if (group := _result(place)) is not None],
            step=self._step - 1,
            state={"step": self._step, "next": self._next, "waiting": waiting},
            max_staleness=self._max_staleness,
            mask_stale=self._options.on_stale == "mask",
            updates_since=await self._updates_since(),
            collected=collected,
        )


def _result(place: _Place) -> Group | None:
    assert place.group is not None
    return place.group.result()


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
