"""What a program left behind is removed, however it lies, and nothing waits for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gymq.failures import ComponentFailed
from gymq.processes.held_folder import HeldFolder
from gymq.sandbox import LocalSandbox, local
from gymq.sandbox.control_groups import ControlGroup

from .conftest import run_python, sandbox

__all__ = ["sandbox"]


async def test_the_event_loop_does_not_wait(sandbox: LocalSandbox, monkeypatch):
    threads = []

    def release(held: HeldFolder) -> None:
        threads.append(threading.current_thread())
        released(held)

    released = HeldFolder.release
    monkeypatch.setattr(HeldFolder, "release", release)
    await run_python(sandbox, "import os; os.makedirs('a/b')")
    assert threading.main_thread() not in threads
    assert len(threads) == sandbox.describe().startswith("process")


async def test_a_start_that_fails_leaves_nothing_and_the_event_loop_does_not_wait(sandbox: LocalSandbox, monkeypatch):
    removed = []

    def release(held: HeldFolder) -> None:
        removed.append((threading.current_thread(), Path(held.path)))
        released(held)

    def remove_group(group: ControlGroup) -> None:
        removed.extend((threading.current_thread(), folder) for folder in group.folders)
        removed_group(group)

    async def start_process(*given: object, **options: object) -> None:
        raise ComponentFailed("sh cannot be run")

    released = HeldFolder.release
    monkeypatch.setattr(HeldFolder, "release", release)
    removed_group = ControlGroup.remove
    monkeypatch.setattr(ControlGroup, "remove", remove_group)
    monkeypatch.setattr(local, "start_process", start_process)
    open_files = os.listdir("/proc/self/fd")
    with pytest.raises(ComponentFailed, match="sh cannot be run"):
        await run_python(sandbox, "pass")
    assert os.listdir("/proc/self/fd") == open_files
    assert removed or "(weaker)" in sandbox.describe()
    assert not any(path.exists() for _, path in removed)
    assert threading.main_thread() not in [thread for thread, _ in removed]
