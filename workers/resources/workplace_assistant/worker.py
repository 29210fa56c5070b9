"""workplace_assistant: office tasks on five tables (mail, calendar, web analytics, project board, customers).

The reward compares states, not transcripts: the calls of the response and the expected calls are both run on fresh
tables, which have to be the same afterwards. Derived from the WorkBench benchmark (Styles et al., 2024).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pydantic
from gymq.workers.resources.workplace_assistant import analytics, customers, emails, events, tasks
from gymq.workers.resources.workplace_assistant.records import matches
from gymq.workers.resources.workplace_assistant.tables import BadTables, Tables, load_tables, same_tables

import gymq

CHANGING = emails.CHANGING | events.CHANGING | analytics.CHANGING | tasks.CHANGING | customers.CHANGING

Call = tuple[str, str]  # tool and arguments, the latter as JSON text


def same_outcome(folder: Path, calls: Iterable[Call], expected_calls: Iterable[Call]) -> bool:
    """Return whether both lead to the same tables, each starting from those in the folder."""
    return same_tables(_after(load_tables(folder).copy(), calls), _after(load_tables(folder).copy(), expected_calls))


def _after(tables: Tables, calls: Iterable[Call]) -> Tables:
    """Return the tables after the calls. A call that fails changes nothing; calls that only read are left out."""
    for name, arguments in calls:
        if name in CHANGING:
            with contextlib.suppress(Exception):
                CHANGING[name](tables, **json.loads(arguments))
    return tables


READING = emails.READING | events.READING | analytics.READING | tasks.READING
SEARCHING = events.SEARCHING | tasks.SEARCHING | customers.SEARCHING


class Action(pydantic.BaseModel):
    name: str
    arguments: str  # JSON


class OfficeRow(gymq.Row):
    id: int
    ground_truth: list[Action] | str
    category: str
    environment_name: str


class WorkplaceAssistant(gymq.Resources[OfficeRow, Tables]):
    """Reward 1 if the calls leave the tables in the expected state."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        data_dir: Path = Path(__file__).parent / "data" / "tables"

    search_timeout_s: ClassVar[float] = 5.0  # for one regular expression of the model

    async def start(self) -> None:
        try:
            load_tables(self.options.data_dir)
        except BadTables as error:
            raise gymq.OptionsError(f"{self.name}: data_dir: {error}") from None

    async def open(self, row: gymq.Row) -> Tables:
        return load_tables(self.options.data_dir).copy()

    async def call_tool(self, state: Tables, name: str, arguments: Any) -> dict[str, Any]:
        """Run a tool. Its errors are answers too."""
        if not isinstance(arguments, dict):
            raise gymq.ToolError(422, f"the arguments of {name} have to be an object")
        given = {key: value for key, value in arguments.items() if value is not None}
        try:
            return {"output": await self._run(state, name, given)}
        except Exception as error:
            return {"output": f"Error executing tool '{name}': {error or type(error).__name__}"}

    async def _run(self, tables: Tables, name: str, arguments: dict[str, Any]) -> Any:
        if name in SEARCHING:
            return await SEARCHING[name](tables, self._matches, **arguments)
        function = READING.get(name) or CHANGING.get(name)
        if function is None:
            raise LookupError("there is no such tool")
        return function(tables, **arguments)

    async def _matches(self, pattern: str, texts: list[str]) -> list[bool]:
        try:
            return await self.processes.run(self.search_timeout_s, matches, pattern, texts)
        except TimeoutError:
            raise TimeoutError(f"the pattern took longer than {self.search_timeout_s:g} seconds") from None

    async def verify(self, request: gymq.VerifyRequest[OfficeRow, Tables]) -> gymq.Verdict:
        truth = request.row.ground_truth
        expected = [] if isinstance(truth, str) else [(action.name, action.arguments) for action in truth]
        calls = [(call["name"], call.get("arguments") or "") for call in request.function_calls]
        same = await self.processes.run(self.verify_timeout_s, same_outcome, self.options.data_dir, calls, expected)
        return gymq.Verdict(float(same))
