"""Tasks in progress with their rollouts so far, and the indices of complete tasks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import msgspec


class Scored(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A rollout that has a reward."""

    agent: str
    reward: float
    answer: bytes | None


class Failed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The last failed attempt at a rollout."""

    order: int  # a later attempt has a larger one
    final: bool  # no further attempt can follow
    agent: str
    failure_class: str


class TaskRollouts(msgspec.Struct):
    """The rollouts of a task by one agent."""

    scored: list[Scored] = []
    num_failed: int = 0


class _Task(msgspec.Struct, array_like=True):
    num_rollouts: int | None = None
    scored: dict[int, Scored] = {}
    failed: dict[int, Failed] = {}

    def is_complete(self, at_least: int) -> bool:
        if self.num_rollouts is None:
            return False
        num_final = len(self.scored) + sum(failure.final for failure in self.failed.values())
        return num_final >= max(self.num_rollouts, at_least)

    def by_agent(self) -> dict[str, TaskRollouts]:
        found: dict[str, TaskRollouts] = {}
        for rollout in self.scored.values():
            found.setdefault(rollout.agent, TaskRollouts()).scored.append(rollout)
        for failure in self.failed.values():
            found.setdefault(failure.agent, TaskRollouts()).num_failed += 1
        return found


class OpenTasks(msgspec.Struct):
    """The rollouts of incomplete tasks, and the indices of complete ones."""

    open: dict[int, _Task] = {}
    # By the number of rollouts with which they were complete: ascending, as first, behind-last, first, behind-last, …
    closed: dict[int, list[int]] = {}
    at_least: int = 0  # rollouts of a task; with fewer none is complete

    def __len__(self) -> int:
        return len(self.open)

    def add(self, task_index: int, rollout_index: int, rollout: Scored | Failed, num_rollouts: int | None) -> bool:
        """Add a rollout; a reward replaces failures.

        Returns:
            False if the task is closed, the rollout has a reward, or this attempt or a later one has failed already.
        """
        if self.closed_with(task_index) is not None:
            return False
        task = self.open.setdefault(task_index, _Task())
        if num_rollouts is not None:
            # Rollouts that were submitted before the run was extended have a smaller number.
            task.num_rollouts = max(num_rollouts, task.num_rollouts or 0)
        if rollout_index in task.scored:
            return False
        if isinstance(rollout, Scored):
            task.scored[rollout_index] = rollout
            task.failed.pop(rollout_index, None)
            return True
        before = task.failed.get(rollout_index)
        if before is not None and before.order >= rollout.order:
            return False
        task.failed[rollout_index] = rollout
        return True

    def failure_of(self, task_index: int, rollout_index: int) -> Failed | None:
        """Return the last failure of a rollout of an open task; None if it has none, or a reward."""
        task = self.open.get(task_index)
        return None if task is None else task.failed.get(rollout_index)

    def closed_with(self, task_index: int) -> int | None:
        """Return the number of rollouts with which a task was complete; None if it is incomplete."""
        for num_rollouts, ranges in self.closed.items():
            if bisect_right(ranges, task_index) % 2:
                return num_rollouts
        return None

    def close_if_complete(self, task_index: int) -> dict[str, TaskRollouts]:
        """Remove a complete task; return its rollouts by agent.

        Rows with their own indices may share a task between agents. The result is empty if the task is incomplete.
        """
        task = self.open[task_index]
        if task.num_rollouts is None or not task.is_complete(self.at_least):
            return {}
        del self.open[task_index]
        _add_to_ranges(self.closed.setdefault(max(task.num_rollouts, self.at_least), []), task_index)
        return task.by_agent()

    def rollouts(self) -> Iterator[dict[str, TaskRollouts]]:
        """Yield the rollouts so far of each open task, by agent."""
        for task in self.open.values():
            yield task.by_agent()


def _add_to_ranges(ranges: list[int], index: int) -> None:
    """Add an index that is in none of the ranges; ranges that then touch become one."""
    place = bisect_right(ranges, index)
    extends_left = place > 0 and ranges[place - 1] == index
    extends_right = place < len(ranges) and ranges[place] == index + 1
    if extends_left and extends_right:
        del ranges[place - 1 : place + 1]
    elif extends_left:
        ranges[place - 1] = index + 1
    elif extends_right:
        ranges[place] = index
    else:
        ranges[place:place] = [index, index + 1]
