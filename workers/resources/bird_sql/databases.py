"""The databases: sandboxes with a copy of one each, which stay and answer one query after another."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Literal

from gymq.errors import GymqError
from gymq.failures import ComponentFailed
from gymq.sandbox import Limits, Program, ProgramSession, Sandbox, SandboxOptions, SessionEnded

MEMORY_BYTES = 2 * 1024**3
ROOM_BYTES = 256 * 1024**2  # beside the copy of a database, for what SQLite sorts on disk
GRACE_S = 1.0  # for a query to notice that its time is over; after that its sandbox is given up
_START_S = 60.0

_FOLDER = "/database"
_HARNESS = (Path(__file__).parent / "queries.py").read_bytes()

Finding = Literal["equal", "different", "reference_failed", "query_failed"]


class QueryFailed(GymqError):
    """A query gives no rows: an error, a limit, or the end of its sandbox."""


class _Copy:
    """A sandbox with a copy of a database."""

    def __init__(self, name: str, session: ProgramSession) -> None:
        self.name = name
        self.session = session
        self.ended = False
        self.is_used = False  # by earlier queries

    async def run(self, sql: str, timeout_s: float, *, is_reference: bool) -> bool:
        """Run a query; whether its rows are those of the reference before it.

        Raises:
            QueryFailed: there are no rows.
            ComponentFailed: nothing is known about the query.
        """
        request = json.dumps({"sql": sql, "is_reference": is_reference}).encode()
        try:
            answer = json.loads(await self.session.exchange(request, timeout_s + GRACE_S))
        except (TimeoutError, SessionEnded) as error:
            self.ended = True
            if is_reference and self.is_used and isinstance(error, SessionEnded):
                raise ComponentFailed("a sandbox with a database ended while it was idle") from None
            raise QueryFailed(str(error) or "out of time") from None
        except BaseException:
            self.ended = True
            raise
        if "error" in answer:
            raise QueryFailed(answer["error"])
        return bool(answer["equal"])


class Databases:
    """Compares the rows of two queries.

    Args:
        folder: holds `NAME/NAME.sqlite` for each database.
        at_a_time: comparisons at a time, and copies that are kept.
        timeout_s: seconds for one query.
    """

    def __init__(
        self, sandbox: Sandbox, options: SandboxOptions, folder: Path, at_a_time: int, timeout_s: float
    ) -> None:
        self._sandbox = sandbox
        self._options = options
        self._folder = folder.resolve()
        self._timeout_s = timeout_s
        self._at_a_time = at_a_time
        self._slots = asyncio.Semaphore(at_a_time)
        self._busy = 0
        self._idle: list[_Copy] = []  # the one used last is at the end

    async def finding(self, name: str, reference: str, query: str | None) -> Finding:
        """Run a reference, then a query, and compare the sets of their rows.

        Args:
            query: None: only the reference is run, and the query counts as failed.

        Raises:
            ComponentFailed: nothing is known about the queries.
        """
        folder = self._folder_of(name)
        if folder is None:
            return "reference_failed"
        async with self._slots:
            self._busy += 1
            copy = None
            try:
                copy = await self._taken(name, folder)
                return await self._compared(copy, reference, query)
            finally:
                self._busy -= 1
                if copy is not None:
                    await self._returned(copy)

    async def close(self) -> None:
        """End all sandboxes that are not in use."""
        idle, self._idle = self._idle, []
        for copy in idle:
            await copy.session.close()

    async def _compared(self, copy: _Copy, reference: str, query: str | None) -> Finding:
        try:
            await copy.run(reference, self._timeout_s, is_reference=True)
        except QueryFailed:
            return "reference_failed"
        if query is None:
            return "query_failed"
        try:
            equal = await copy.run(query, self._timeout_s, is_reference=False)
        except QueryFailed:
            return "query_failed"
        return "equal" if equal else "different"

    def _folder_of(self, name: str) -> Path | None:
        """Return the folder of a database; None if there is none of this name."""
        if not name or name in (".", "..") or set(name) & set("/\\\0"):
            return None
        try:
            return self._folder / name if (self._folder / name / f"{name}.sqlite").is_file() else None
        except (OSError, ValueError):  # no name of a file
            return None

    async def _taken(self, name: str, folder: Path) -> _Copy:
        """Return an idle copy or a new one; that which was not used for longest makes room."""
        found = next((copy for copy in reversed(self._idle) if copy.name == name), None)
        if found is not None:
            self._idle.remove(found)
            return found
        if self._idle and len(self._idle) + self._busy > self._at_a_time:
            await self._idle.pop(0).session.close()
        return await self._started(name, folder)

    async def _returned(self, copy: _Copy) -> None:
        if copy.ended:
            await copy.session.close()
        else:
            copy.is_used = True
            self._idle.append(copy)

    async def _started(self, name: str, folder: Path) -> _Copy:
        size = await asyncio.to_thread(lambda: sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
        limits = Limits(
            time_s=None, memory_bytes=MEMORY_BYTES, file_bytes=2 * size + ROOM_BYTES, disk_bytes=2 * size + ROOM_BYTES
        )
        program = Program(
            (self._sandbox.python, "-I", "queries.py", f"{_FOLDER}/{name}.sqlite"),
            files={"queries.py": _HARNESS},
            folders={_FOLDER: str(folder)},
        )
        session = await self._sandbox.open(program, self._options.limits(limits))
        copy = _Copy(name, session)
        try:
            # So that the time of the first query does not include that of copying the database.
            await copy.run("SELECT 1", self._timeout_s + _START_S, is_reference=True)
        except QueryFailed as error:
            await session.close()
            raise ComponentFailed(f"the database {name} cannot be queried in a sandbox: {error}") from None
        except BaseException:
            await session.close()
            raise
        return copy
