"""What a program left behind is removed, however it lies, and nothing waits for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gymq.failures import ComponentFailed
from gymq.sandbox import LocalSandbox, local
from gymq.sandbox.control_groups import ControlGroup
from gymq.sandbox.process import remove

from .conftest import run_python, sandbox

__all__ = ["sandbox"]


@pytest.mark.nightly
def test_folders_in_folders_are_removed(tmp_path, monkeypatch):
    folder = tmp_path / "full"
    folder.mkdir()
    monkeypatch.chdir(folder)
    os.symlink("/etc", "outside")
    for _ in range(4000):  # deeper than a path can name, and than functions may call themselves
        os.mkdir("folder")
        os.chdir("folder")
    Path("file").touch()
    os.chdir(tmp_path)
    remove(str(folder))
    assert os.listdir(tmp_path) == []
    assert os.path.isdir("/etc")


def test_closed_folders_are_removed(tmp_path):
    folder = tmp_path / "full"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    for closed in ("a/b", "a", "."):
        (folder / closed).chmod(0)
    remove(str(folder))
    assert os.listdir(tmp_path) == []


async def test_the_event_loop_does_not_wait(sandbox: LocalSandbox, monkeypatch):
    threads = []

    def remove_there(folder: str) -> None:
        threads.append(threading.current_thread())
        remove(folder)

    monkeypatch.setattr(local, "remove", remove_there)
    await run_python(sandbox, "import os; os.makedirs('a/b')")
    assert threading.main_thread() not in threads
    assert len(threads) == sandbox.describe().startswith("process")


async def test_a_start_that_fails_leaves_nothing_and_the_event_loop_does_not_wait(sandbox: LocalSandbox, monkeypatch):
    removed = []

    def remove_folder(folder: str) -> None:
        removed.append((threading.current_thread(), Path(folder)))
        remove(folder)

    def remove_group(group: ControlGroup) -> None:
        removed.extend((threading.current_thread(), folder) for folder in group.folders)
        group.remove()

    async def start_process(*given: object, **options: object) -> None:
        raise ComponentFailed("sh cannot be run")

    monkeypatch.setattr(local, "remove", remove_folder)
    monkeypatch.setattr(local, "_remove_group", remove_group)
    monkeypatch.setattr(local, "start_process", start_process)
    open_files = os.listdir("/proc/self/fd")
    with pytest.raises(ComponentFailed, match="sh cannot be run"):
        await run_python(sandbox, "pass")
    assert os.listdir("/proc/self/fd") == open_files
    assert removed or "(weaker)" in sandbox.describe()
    assert not any(path.exists() for _, path in removed)
    assert threading.main_thread() not in [thread for thread, _ in removed]
