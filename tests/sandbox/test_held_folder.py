"""The folder of trusted programs: its path follows from a name, one process has it at a time, other users cannot."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import psutil
import pytest

from gymq.failures import ComponentFailed
from gymq.sandbox import Subprocess
from gymq.sandbox.held_folder import HeldFolder
from tests.support.owners import start_owner
from tests.support.waiting import until

NAME = "../../etc/run\0 of somebody \ud800/0/0"
ARGUMENTS = 'name="a run/0/0"'


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that no other test and no other user has."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def parent(temporary: Path) -> Path:
    return temporary / f"gymq-programs-{os.geteuid()}"


async def test_the_same_name_has_the_same_path_and_nothing_of_it_is_in_the_path(temporary: Path) -> None:
    paths = []
    for name in (NAME, NAME, "another", None, None):
        async with Subprocess(name=name) as place:
            assert list(place.folder.iterdir()) == []
            await place.write("left", b"behind")
            paths.append(place.folder)
    assert paths[0] == paths[1]
    assert len(set(paths)) == 4
    assert {path.parent for path in paths} == {parent(temporary)}
    assert all(path.name.isalnum() for path in paths)
    assert list(parent(temporary).iterdir()) == []
    assert parent(temporary).stat().st_mode & 0o777 == 0o700


async def test_a_folder_whose_holder_lives_is_neither_shared_nor_emptied(caplog: pytest.LogCaptureFixture) -> None:
    async with Subprocess(name=NAME) as first:
        await first.write("work", b"of the first")
        async with Subprocess(name=NAME) as second:
            assert second.folder != first.folder
            assert f"{first.folder} is in use by another process; this attempt works in {second.folder}" in caplog.text
        assert (first.folder / "work").read_bytes() == b"of the first"


async def test_an_attempt_that_resumes_waits_for_the_one_before_to_end() -> None:
    first = Subprocess(name=NAME)
    await first.start()
    resuming = Subprocess(name=NAME, resumes=True)
    starting = asyncio.create_task(resuming.start())
    await asyncio.sleep(0)
    assert not starting.done()
    await first.stop()
    await starting
    assert resuming.folder == first.folder
    await resuming.stop()


async def test_a_killed_process_leaves_its_folder_to_the_next_once_its_programs_are_gone(tmp_path: Path) -> None:
    driver, (pid, folder) = await start_owner(tmp_path, "(setsid sleep 600) & touch old;", "$! $PWD", ARGUMENTS)
    driver.kill()
    async with Subprocess(name="a run/0/0", resumes=True) as place:
        assert not psutil.pid_exists(int(pid))
        assert str(place.folder) == folder
        assert list(place.folder.iterdir()) == []
        await driver.wait()
        assert place.folder.is_dir()


async def test_what_is_left_without_a_process_is_removed_and_no_link_is_followed(temporary: Path) -> None:
    async with Subprocess(name=NAME) as place:
        folder = place.folder
    kept = temporary / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (folder / "closed").mkdir(parents=True)
    (folder / "link").symlink_to(kept)
    (folder / "closed").chmod(0)
    async with Subprocess(name=NAME) as place:
        assert (place.folder, list(place.folder.iterdir())) == (folder, [])
    assert (kept / "file").exists()
    assert list(parent(temporary).iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "file"])
async def test_what_is_no_folder_is_left_alone(temporary: Path, kind: str) -> None:
    async with Subprocess(name=NAME) as place:
        folder = place.folder
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        folder.symlink_to(elsewhere)
    else:
        folder.touch()
    async with Subprocess(name=NAME) as place:
        await place.write("file", b"")
        assert place.folder != folder
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "open to others", "of another user"])
async def test_a_place_that_another_user_may_have_prepared_is_refused(
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
    with pytest.raises(ComponentFailed, match=f"{parent(temporary)} has to be a folder of user .* set TMPDIR"):
        await HeldFolder.take(NAME, 0.0)
    assert list(elsewhere.iterdir()) == []


async def test_a_machine_without_room_is_one_sentence(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "gone"))
    with pytest.raises(ComponentFailed, match="no folder for a program: No such file or directory: "):
        await HeldFolder.take(None, 0.0)


async def test_a_lost_owner_takes_no_folder_with_it_that_has_a_new_holder(tmp_path: Path) -> None:
    driver, (path,) = await start_owner(tmp_path, "", "$PWD", ARGUMENTS)
    folder = Path(path)
    keeper = psutil.Process(driver.pid).children()
    shutil.move(folder, tmp_path / "moved")
    async with Subprocess(name="a run/0/0") as place:
        assert place.folder == folder
        driver.kill()
        await driver.wait()
        await until(lambda: not any(process.is_running() for process in keeper))
        await place.write("still", b"here")
