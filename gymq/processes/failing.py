"""What is done where a block fails: what it began is undone, or the failure is logged."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable


class OnFailure:
    """Calls a function if a block fails or is cancelled: `with OnFailure(file.close): ...`."""

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._undo()


class OnFailureAwait:
    """Awaits what a function returns if a block fails or is cancelled: `async with OnFailureAwait(bus.close): ...`."""

    def __init__(self, undo: Callable[[], Awaitable[object]]) -> None:
        self._undo = undo

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            await self._undo()


class FailureLogged:
    """Logs an exception of a block after a text, and ends it: `with FailureLogged(log, "not closed"): ...`."""

    def __init__(self, log: logging.Logger, text: str, *args: object) -> None:
        self._log = log
        self._text = text
        self._args = args

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        is_logged = isinstance(error, Exception)
        if is_logged:
            self._log.error(self._text, *self._args, exc_info=error)
        return is_logged
