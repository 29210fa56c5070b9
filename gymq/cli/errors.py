"""How a command says that it cannot do what it was asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Refused(Exception):
    """One sentence for the person at the terminal; the exit status is 2."""


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turns the errors that say what the person should do into `Refused`."""
    from gymq.authoring import OptionsError
    from gymq.bus import BusError
    from gymq.collect import CollectError
    from gymq.config import ConfigError
    from gymq.host import WorkerFailed
    from gymq.jsonl import JsonlError
    from gymq.launch import LaunchError
    from gymq.messages import BadMessage
    from gymq.profile import ProfileError
    from gymq.registry import WorkerNotFound
    from gymq.rows import RowError
    from gymq.run_files import RunFileError
    from gymq.scaffold import ScaffoldError
    from gymq.server import ServerError
    from gymq.subjects import BadToken
    from gymq.testing import AuditError
    from gymq.verifiers import ScoreError

    try:
        yield
    except (
        AuditError,
        BadMessage,
        BadToken,
        BusError,
        CollectError,
        ConfigError,
        JsonlError,
        LaunchError,
        OptionsError,
        ProfileError,
        RowError,
        RunFileError,
        ScaffoldError,
        ScoreError,
        ServerError,
        WorkerFailed,
        WorkerNotFound,
    ) as error:
        raise Refused(str(error)) from error
