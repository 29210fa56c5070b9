"""Installers of packages, run to their end or to that of the process that needs the packages."""

import asyncio
import threading
from pathlib import Path

import pytest

from gymq.errors import UsageError
from gymq.processes.installer import alone, in_thread, install
from tests.support.waiting import until


def run(script: str, *, timeout_s: float = 60.0, cancelled: threading.Event | None = None) -> None:
    install(
        ["/bin/sh", "-c", script], shown="tool get x", timeout_s=timeout_s, cancelled=cancelled or threading.Event()
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("WARNING: it is old\\nno package x", "`tool get x` failed: no package x"),
        ("npm warn it is old", "`tool get x` failed: npm warn it is old"),
        ("no https://me:a-long-password@host", "`tool get x` failed: no https://***@host"),
    ],
)
def test_an_error_has_the_last_lines_without_warnings_and_secrets(said: str, shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(f"printf '{said}' >&2; exit 1")
    assert str(caught.value) == shown


def test_an_installer_that_takes_too_long_is_ended() -> None:
    with pytest.raises(UsageError, match="did not finish within 0 s"):
        run("exec sleep 60", timeout_s=0.0)


async def test_all_processes_of_an_installer_end_when_nobody_waits_for_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"

    def make(cancelled: threading.Event) -> None:
        run(script, cancelled=cancelled)

    waiting = asyncio.create_task(in_thread(make))
    await until(pid.exists)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    stat = Path("/proc", pid.read_text().strip(), "stat")
    await until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z", deadline_s=30.0)


def test_a_folder_is_made_by_one_process_at_a_time(tmp_path: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    place = tmp_path / "tools" / "x"
    with alone(place, cancelled), pytest.raises(UsageError, match="wait for x was cancelled"), alone(place, cancelled):
        pass
