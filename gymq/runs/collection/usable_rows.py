"""The rows of a data set that a collection can use, and why it cannot use the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

from gymq.data.datasets import Dataset
from gymq.data.disk_index import EarlierRows
from gymq.data.materialise import Materialisation
from gymq.data.row_problems import RowProblems
from gymq.data.rows import MaterialisedRow, RowError, digest_without_task
from gymq.errors import UsageError
from gymq.failures import InvalidTask
from gymq.protocol import subjects
from gymq.protocol.messages import MAX_BODY_BYTES
from gymq.runs.collection.options import CollectOptions

MAX_ROW_BYTES = MAX_BODY_BYTES - 64 * 1024  # of a row in its task, whose other fields are small


class UsableRows:
    """One pass over a data set. Use it as a context manager, and iterate once.

    Attributes:
        problems: of the rows that cannot be used.
        agents: file and line that name each agent first.
        num_rollouts: usable rows so far, each as often as it is repeated.
    """

    def __init__(
        self,
        dataset: Dataset,
        options: CollectOptions,
        check_row: Callable[[str, bytes], None],
        *,
        known: EarlierRows | None = None,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare a pass.

        Args:
            check_row: called with the agent and the text of a row; raises InvalidTask if its verifier refuses it.
            known: the rows of an earlier start. Each row is looked up there; those it has are not checked again.
            on_problem: called with place and problem of each row that cannot be used.
        """
        self.problems = RowProblems()
        self.agents: dict[str, str] = {}
        self.num_rollouts = 0
        self._dataset = dataset
        self._options = options
        self._check_row = check_row
        self._known = known
        self._on_problem = on_problem
        self._materialisation = Materialisation(options.materialise, options.wording.name_prompt)
        self._checked_line = 0

    def __enter__(self) -> Self:
        self._materialisation.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._materialisation.__exit__(*error)

    def __iter__(self) -> Iterator[MaterialisedRow]:
        """Yield the rows of the rollouts, in order.

        Raises:
            JsonlError: a file cannot be read.
        """
        refused_line = 0
        for row in self._materialisation.rows(_Lines(self._dataset, self._refuse), self._refuse):
            if row.line_number == refused_line:
                continue
            if problem := self._problem_of(row):
                refused_line = row.line_number
                self._refuse(refused_line, problem)
            else:
                self.num_rollouts += 1
                yield row

    def warnings(self) -> list[str]:
        """Return sentences about likely mistakes; complete after the pass, before the end of the context."""
        return [*self._materialisation.warnings, *self._materialisation.equal_rows(self._dataset.place)]

    def check(self) -> None:
        """Check after a pass that there are usable rows, and that all are usable if they are strict.

        Raises:
            RowError: they are not; the message has each kind of problem.
            UsageError: there are no rows.
        """
        if self.problems.count and (self._options.strict_rows or not self.num_rollouts):
            raise RowError(self.problems.report(self._materialisation.num_lines))
        if not self.num_rollouts:
            raise UsageError(f"{self._dataset.name} has no rows")

    def _refuse(self, line_number: int, problem: str) -> None:
        place = self._dataset.place(line_number)
        self.problems.add(place, problem)
        if self._on_problem is not None:
            self._on_problem(f"{place}: {problem}")

    def _problem_of(self, row: MaterialisedRow) -> str:
        """Return why a row cannot be used; empty if it can."""
        if len(row.json) > MAX_ROW_BYTES:
            return f"the row has {len(row.json):,} bytes, and may have {MAX_ROW_BYTES:,}"
        if row.agent not in self.agents:
            try:
                subjects.instance(row.agent, "agent")
            except subjects.BadToken as error:
                return str(error)
            self.agents[row.agent] = self._dataset.place(row.line_number)
        if self._known is not None and self._known.find(
            row.task_index, row.rollout_index, digest_without_task(row.json)
        ):
            return ""
        if row.line_number == self._checked_line:
            return ""
        self._checked_line = row.line_number
        try:
            self._check_row(row.agent, row.json)
        except InvalidTask as error:
            return error.message
        return ""


class _Lines:
    """The lines of a data set, without the rows that have no JSON form."""

    def __init__(self, dataset: Dataset, refuse: Callable[[int, str], None]) -> None:
        self.name = dataset.name
        self._dataset = dataset
        self._refuse = refuse

    def __iter__(self) -> Iterator[bytes]:
        return self._dataset.lines(self._refuse)
