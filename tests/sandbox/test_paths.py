"""Paths that come from rows lead nowhere but into the sandbox; those that would are refused, and not tried again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gymq.failures import InvalidTask
from gymq.protocol.messages import FailureClass
from gymq.sandbox import LocalSandbox, Program, ProgramResult, isolation, visible
from gymq.sandbox.interface import check_path

from .conftest import run_python


@pytest.mark.parametrize("path", ["", "testbed", "/a/../b", "/a/./b", "/a//b", "//a", "/a/", "/a\0b", "/..", "."])
def test_a_path_that_is_not_absolute_and_plain_is_refused(path: str):
    with pytest.raises(ValueError, match="not a plain absolute path"):
        check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/usr",
        "/usr/lib",
        "/libx32",
        "/etc",
        "/boot/a",
        "/sys",
        "/proc/self",
        "/dev/shm",
        "/.old",
        "/.old/root",
        "/tmp",
        "/tmp/box/a",
    ],
)
async def test_a_folder_of_the_system_or_of_the_sandbox_is_refused(closed_sandbox: LocalSandbox, path: str):
    with pytest.raises(InvalidTask, match="belongs to the system"):
        await run_python(closed_sandbox, "pass", folders={path: "/tmp"})


@pytest.mark.parametrize("path", ["/testbed", "/app", "/home/user/repo", "/tmp/repo", "/opt/x", "/..a/b", "/root/r"])
def test_other_folders_are_taken(path: str):
    assert not visible.covers(path)


@pytest.mark.parametrize(
    "program",
    [
        {"folders": {"/tmp/../.old/tmp": "/"}},
        {"folders": {"a\0": "/"}},
        {"files": {"../x": b""}},
        {"files": {"/etc/x": b""}},
        {"files": {"a\0": b""}},
        {"image": "a\0b"},
    ],
)
def test_a_program_with_such_a_path_is_an_invalid_task(program):
    with pytest.raises(InvalidTask) as raised:
        Program(("true",), **program)
    assert raised.value.failure_class == FailureClass.INVALID_TASK
    assert not raised.value.retryable


async def test_a_folder_in_the_place_of_this_python_is_refused(
    closed_sandbox: LocalSandbox, tmp_path: Path, monkeypatch
):
    shown = [*visible.view(), (f"{tmp_path}/python", True)]
    monkeypatch.setattr(visible, "view", lambda: shown)
    for place in (str(tmp_path), f"{tmp_path}/python", f"{tmp_path}/python/lib"):
        with pytest.raises(InvalidTask, match="belongs to the system"):
            await run_python(closed_sandbox, "pass", folders={place: "/tmp"})


async def test_no_link_in_a_folder_leads_to_the_machine(closed_sandbox: LocalSandbox, tmp_path: Path):
    """What is copied is copied when the machine's root is gone; a link in the copy is a link in the sandbox."""
    (tmp_path / "secret").write_text("secret")
    repository = tmp_path / "repository"
    repository.mkdir()
    for number, target in enumerate([str(tmp_path), f"/.old{tmp_path}", "../.old", "/proc/1/root/.old"]):
        (repository / f"link{number}").symlink_to(target)
    code = """
import os
for name in sorted(os.listdir('/testbed')):
    path = '/testbed/' + name
    print(os.path.islink(path), os.path.exists(path + '/secret'), os.path.exists(path + '/tmp'))
"""
    finished = await run_python(closed_sandbox, code, folders={"/testbed": str(repository)})
    assert finished.stdout == b"True False False\n" * 4, finished.stderr


async def test_a_path_that_was_not_checked_writes_nothing_on_the_machine(
    closed_sandbox: LocalSandbox, tmp_path: Path, monkeypatch
):
    """The second wall: also without the check such a path leads nowhere."""
    monkeypatch.setattr(Program, "__post_init__", lambda self: None)
    (tmp_path / "x").write_text("x")
    target = tmp_path / "made"
    place = f"/tmp/../.old{target}"
    finished: ProgramResult | Exception
    try:
        finished = await run_python(closed_sandbox, "pass", folders={place: str(tmp_path)})
    except Exception as error:
        finished = error
    assert not target.exists(), finished


def test_both_isolations_with_namespaces_show_the_same():
    words = isolation._bubblewrap_options({}, 1)
    for path, is_shown in visible.view():
        assert path in words or not os.path.exists(path), path
        if not is_shown:
            assert words[words.index(path) - 1] in ("--tmpfs", "/dev/null")
