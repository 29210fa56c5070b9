"""A group of samples that is not complete yet: what is known of its rollouts, and what it still needs."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from gymq.data.failure_status import StatusError, status_error
from gymq.data.jsonl import parse_object
from gymq.data.rows import ROLLOUT_INDEX, TASK_INDEX, MaterialisedRow, digest_of
from gymq.data.trainer_results import result_fields
from gymq.errors import UsageError
from gymq.protocol.messages import FailureClass, Outcome, VerifiedRollout
from gymq.trainer.examples import called
from gymq.trainer.groups import Group, Row, Sample, SampleFailed
from gymq.trainer.options import RolloutOptions


@dataclass
class PendingGroup:
    """A group that is waited for."""

    example: Row
    rows: list[MaterialisedRow]  # one for each rollout, the surplus included, and those in place of stale samples
    options: RolloutOptions
    read_to: int = 0  # stream sequence of the last outcome that was read
    _notified: asyncio.Event = field(default_factory=asyncio.Event)
    _next: list[PendingGroup] = field(default_factory=list)  # of other batches, which wait for the end of this one
    _cut_at: float = math.inf  # on the event loop's clock
    _stored: set[int] = field(default_factory=set)  # rollouts notified of since it was read last
    _replaces: dict[int, int | None] = field(default_factory=dict)  # of rollouts in the queue
    _retryable: dict[int, int] = field(default_factory=dict)  # stream sequences of failures
    _ends: dict[int, tuple[int, Sample | SampleFailed]] = field(default_factory=dict)  # by rollout, with the sequence
    _num_stale: int = 0  # failures that were samples
    _is_refilled: bool = False
    _last_stored: int = -1  # rollout index

    @property
    def task_index(self) -> int:
        return self.rows[0].task_index

    def notify(self, rollout_index: int) -> None:
        """Note that an outcome was stored."""
        self._stored.add(rollout_index)
        self._start_clock()
        self._notified.set()

    def notify_all(self) -> None:
        """Note that outcomes may have been stored."""
        self._stored.update(range(len(self.rows)))
        self._notified.set()

    def forget_notifications(self) -> None:
        self._stored.clear()

    async def until_notified(self) -> bool:
        """Wait for a notification; return whether it is time to cut the group."""
        loop = asyncio.get_running_loop()
        if len(self._settled()) > self._num_stale:
            self._start_clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(None if self._cut_at == math.inf else self._cut_at):
                await self._notified.wait()
        self._notified.clear()
        return loop.time() >= self._cut_at

    def cut(self) -> None:
        """Wait no longer."""
        self._cut_at = -math.inf
        self._notified.set()

    def end(self) -> None:
        """Note that the group is not waited for any more."""
        for pending in self._next:
            pending._notified.set()

    async def until_ended(self, other: PendingGroup) -> bool:
        """Wait for the end of another batch's group of the same task; return whether this one is cut before."""
        other._next.append(self)
        return await self.until_notified()

    def expect(self, queued: dict[int, int | None]) -> None:
        """Expect rollouts that are already in the queue, with the failures that they replace."""
        self._replaces.update(queued)

    def learn(self, stored: Sequence[tuple[int, Outcome]]) -> None:
        """Take in the outcomes of the task that were stored after `read_to`, with their stream sequences, in order.

        Raises:
            UsageError: they are of another row.
        """
        for sequence, outcome in stored:
            self.read_to = sequence
            index = outcome.rollout_index
            self._last_stored = max(self._last_stored, index)
            if index >= len(self.rows):
                continue  # a larger group was asked for, or this one was refilled, at another time
            if index in self._ends and self._ends[index][0] == sequence:
                continue  # read again, since rows were added
            self._ends[index] = (sequence, self._end_of(outcome))
            self._retryable.pop(index, None)
            if not isinstance(outcome, VerifiedRollout) and outcome.retryable:
                self._retryable[index] = sequence

    def exclude_stale(self, behind: Callable[[str], int], max_staleness: int) -> int:
        """Count samples that began too long ago as failures; return how many they are.

        Args:
            behind: how many updates of the policy came after a version.
        """
        num_stale = 0
        for index, (sequence, end) in self._ends.items():
            versions = end.policy_versions if isinstance(end, Sample) else []
            if isinstance(end, SampleFailed) or behind(versions[0] if versions else "") <= max_staleness:
                continue
            begun = f"by the policy {versions[0]!r}" if versions else "without a version"
            text = f"begun {begun}; more than {max_staleness} updates came since"
            self._ends[index] = sequence, SampleFailed(index, str(FailureClass.STALE), text, 500)
            num_stale += 1
        self._num_stale += num_stale
        return num_stale

    def add_rows(self, count: int) -> None:
        """Add rollouts to the group: outcomes are never replaced by others, unless they are failures."""
        for _ in range(count):
            index = len(self.rows)
            fields = {**parse_object(self.rows[0].json), ROLLOUT_INDEX: index}
            self.rows.append(replace(self.rows[0], rollout_index=index, json=msgspec.json.encode(fields)))
        self.read_to = 0

    def refill(self) -> bool:
        """Add rollouts in place of those that failed, once, and only to a group of which some succeeded."""
        missing = self.options.num_samples - len(self._samples())
        if self._is_refilled or missing < 1 or not self.has_samples or len(self._settled()) < len(self.rows):
            return False
        self._is_refilled = True
        self.add_rows(missing)
        return True

    def take_up_refill(self, queued: Iterable[int]) -> bool:
        """Expect what was added at another time in place of failures, which are not tried again then.

        Args:
            queued: indices of the rollouts that are in the queue.
        """
        count = max((self._last_stored, *queued)) + 1 - len(self.rows)
        if count < 1 or not self._retryable:
            return False
        self._is_refilled = True
        self._retryable.clear()
        self.add_rows(count)
        return True

    def to_submit(self) -> Iterator[tuple[MaterialisedRow, int | None]]:
        """Yield rows to put into the queue, with the failures to replace; they count as in the queue from then on."""
        if len(self._samples()) >= self.options.num_samples:
            return
        for row in self.rows:
            index = row.rollout_index
            if index in self._replaces or (index in self._ends and index not in self._retryable):
                continue
            self._replaces[index] = self._retryable.get(index)
            yield row, self._replaces[index]

    @property
    def may_be_complete(self) -> bool:
        """Return whether it would be complete if all rollouts with a notification are samples."""
        notified = len(self._stored)
        return len(self._samples()) + notified >= self.options.num_samples or len(self._settled()) + notified >= len(
            self.rows
        )

    @property
    def is_complete(self) -> bool:
        """Return whether there are enough samples, or no rollout is left that could be one."""
        return len(self._samples()) >= self.options.num_samples or len(self._settled()) == len(self.rows)

    @property
    def has_samples(self) -> bool:
        return bool(self._samples())

    @property
    def is_queued(self) -> bool:
        """Return whether a rollout of it is queued or in flight."""
        return any(index in self._replaces and not self._is_settled(index) for index in range(len(self.rows)))

    def group(self) -> Group:
        """Return what there is: of samples that are too many, those that were stored first."""
        num_samples = self.options.num_samples
        failures = [end for end in self._settled() if isinstance(end, SampleFailed)]
        return Group(self.task_index, self.example, self._samples()[:num_samples], failures, num_samples)

    def _samples(self) -> list[Sample]:
        return [end for end in self._settled() if isinstance(end, Sample)]

    def _settled(self) -> list[Sample | SampleFailed]:
        """Return how rollouts ended, in the order of the stream."""
        ends = [self._ends[index] for index in self._ends if self._is_settled(index)]
        return [end for _, end in sorted(ends, key=lambda end: end[0])]

    def _is_settled(self, index: int) -> bool:
        """Return whether a rollout has ended, and not with a failure whose replacement has yet to come."""
        if index not in self._ends:
            return False
        return index not in self._replaces or self._replaces[index] != self._ends[index][0]

    def _start_clock(self) -> None:
        if self.options.straggler_s is not None and self._cut_at == math.inf:
            self._cut_at = asyncio.get_running_loop().time() + self.options.straggler_s

    def _end_of(self, outcome: Outcome) -> Sample | SampleFailed:
        index = outcome.rollout_index
        row = self.rows[index].json
        is_readable = isinstance(outcome, VerifiedRollout) or outcome.failure_class is not FailureClass.NOT_STORABLE
        if is_readable and outcome.row != row and digest_of(parse_object(outcome.row)) != digest_of(parse_object(row)):
            raise UsageError(
                f"{called(f'task {self.task_index} of run {outcome.run}', self.example)} is stored with another row: "
                f"give a new row a new `{TASK_INDEX}`, or the run a new name"
            )
        try:
            if not isinstance(outcome, VerifiedRollout):
                raise status_error(outcome)
            result = result_fields(outcome, self.options.on_untrainable)
        except StatusError as error:
            return SampleFailed(index, error.failure_class, error.message, error.status)
        return Sample(index, result, outcome.policy_versions)
