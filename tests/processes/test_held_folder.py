"""Temporary folders: a path that follows from a name, one holder at a time, nothing left of holders that are gone."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import pytest

from gymq.processes.held_folder import HeldFolder, remove
from tests.support.waiting import until

NAME = "../../etc/run\0 of somebody \ud800/0/0"

HOLDER = """
import pathlib, time
from gymq.processes.held_folder import HeldFolder
held = HeldFolder.take()
pathlib.Path(held.path, "left").touch()
print(held.path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that no other test and no other user has."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def parent(temporary: Path) -> Path:
    return temporary / f"gymq-{os.geteuid()}"


def folders(temporary: Path) -> list[Path]:
    return list(parent(temporary).iterdir())


def test_the_same_name_has_the_same_path_and_nothing_of_it_is_in_the_path(temporary: Path) -> None:
    paths = []
    for name in (NAME, NAME, "another", None, None):
        held = HeldFolder.take(name)
        assert os.listdir(held.path) == []
        Path(held.path, "left").touch()
        held.release()
        paths.append(Path(held.path))
    assert paths[0] == paths[1]
    assert len(set(paths)) == 4
    assert {path.parent for path in paths} == {parent(temporary)}
    assert all(path.name.isalnum() for path in paths)
    assert folders(temporary) == []
    assert parent(temporary).stat().st_mode & 0o777 == 0o711


def test_a_name_has_one_holder_at_a_time() -> None:
    held = HeldFolder.take(NAME)
    Path(held.path, "work").touch()
    with pytest.raises(FileExistsError):
        HeldFolder.take(NAME)
    HeldFolder.take().release()
    assert os.listdir(held.path) == ["work"]
    held.release()


async def test_the_folder_of_a_killed_process_is_removed_by_the_next_one_that_takes_one(temporary: Path) -> None:
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, stdout=asyncio.subprocess.PIPE)
    assert holder.stdout is not None
    path = Path((await holder.stdout.readline()).decode().strip())
    HeldFolder.take().release()
    assert (path / "left").exists()
    holder.kill()
    await holder.wait()
    HeldFolder.take().release()
    await until(lambda: folders(temporary) == [])


async def test_what_is_left_is_removed_whatever_is_in_it_and_no_link_is_followed(temporary: Path) -> None:
    held = HeldFolder.take(NAME)
    held.release()
    kept, folder = temporary / "kept", Path(held.path)
    kept.mkdir()
    (kept / "file").touch()
    (folder / "closed").mkdir(parents=True)
    (folder / "link").symlink_to(kept)
    (folder / "closed").chmod(0)
    again = HeldFolder.take(NAME)
    assert (again.path, os.listdir(again.path)) == (held.path, [])
    again.release()
    await until(lambda: folders(temporary) == [])
    assert (kept / "file").exists()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_folder_is_left_alone(temporary: Path, kind: str) -> None:
    held = HeldFolder.take(NAME)
    held.release()
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        Path(held.path).symlink_to(elsewhere)
    else:
        Path(held.path).touch()
    with pytest.raises(FileExistsError):
        HeldFolder.take(NAME)
    assert os.path.lexists(held.path)
    assert elsewhere.is_dir()


@pytest.mark.parametrize("kind", ["link", "open to others", "of another user"])
def test_a_place_that_another_user_may_have_prepared_is_refused(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir(0o700)
    if kind == "of another user":
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if kind == "link":
        parent(temporary).symlink_to(elsewhere)
    else:
        parent(temporary).mkdir(0o700)
    if kind == "open to others":
        parent(temporary).chmod(0o770)
    with pytest.raises(PermissionError, match=f"{parent(temporary)} has to be a folder of user .* set TMPDIR"):
        HeldFolder.take(NAME)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.nightly
def test_folders_in_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_closed_folders_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "full"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    for closed in ("a/b", "a", "."):
        (folder / closed).chmod(0)
    remove(str(folder))
    assert os.listdir(tmp_path) == []
