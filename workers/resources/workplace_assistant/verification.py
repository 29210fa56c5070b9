"""Whether two lists of calls leave the office in the same state. Runs in a process: a response may hold many calls."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from gymq.workers.resources.workplace_assistant import analytics, customers, emails, events, tasks
from gymq.workers.resources.workplace_assistant.tables import Tables, load_tables, same_tables

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
