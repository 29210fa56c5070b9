"""What is active is found out by trying, and reported."""

from __future__ import annotations

import logging
import os
import subprocess

import pytest

from gymq.authoring import OptionsError
from gymq.failures import ComponentFailed
from gymq.sandbox import Limits, LocalSandbox, Program, SandboxOptions, local

from .users import REPOSITORY, User, python_as


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_WORKS", set())


async def test_an_isolation_that_does_not_work_is_not_claimed(monkeypatch, tmp_path):
    broken = tmp_path / "unshare"
    broken.write_text("#!/bin/sh\necho not permitted >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ComponentFailed, match="not permitted"):
        await LocalSandbox(isolation="namespaces").start()


async def test_an_isolation_that_does_nothing_is_noticed(monkeypatch, tmp_path):
    # It runs the program, in no namespaces at all: then the file system cannot be built.
    idle = tmp_path / "unshare"
    idle.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec /usr/bin/unshare --user "$@"\n')
    idle.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ComponentFailed):
        await LocalSandbox(isolation="namespaces").start()


async def test_less_isolation_is_a_warning(monkeypatch, caplog, sandbox):
    local._WORKS.clear()  # the fixture has started one already
    caplog.clear()
    fresh = LocalSandbox(isolation=sandbox._isolation.name, python=sandbox.python)
    with caplog.at_level(logging.INFO, logger="gymq.sandbox"):
        await fresh.start()
    (record,) = caplog.records
    assert fresh.describe() in record.getMessage()
    is_less = fresh.describe().startswith("process") or "(weaker)" in fresh.describe()
    assert (record.levelno == logging.WARNING) == is_less


@pytest.fixture
def none_works(monkeypatch, tmp_path):
    for name in ("unshare", "bwrap"):
        (tmp_path / name).write_text("#!/bin/sh\necho not permitted >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("none_works")
async def test_options_that_cannot_be_met_end_the_worker_with_a_sentence():
    with pytest.raises(OptionsError, match="namespaces"):
        await SandboxOptions(isolation="namespaces").started()


@pytest.mark.usefixtures("none_works")
async def test_without_namespaces_nothing_runs():
    with pytest.raises(OptionsError, match=r"namespaces.*bubblewrap.*install bubblewrap.*`isolation: process`"):
        await SandboxOptions().started()
    with pytest.raises(ComponentFailed):
        await LocalSandbox().run(Program(("true",)), Limits())


@pytest.mark.parametrize("user", ["root", "root without CAP_SYS_ADMIN", "an ordinary user"])
def test_each_user_gets_namespaces(user: User):
    code = (
        "import asyncio, gymq.sandbox\nsandbox = gymq.sandbox.LocalSandbox()\nasyncio.run(sandbox.start())\n"
        "print(sandbox.describe())"
    )
    ran = subprocess.run(python_as(user, "-c", code), cwd=REPOSITORY, capture_output=True, check=False)
    assert ran.stdout.startswith((b"namespaces", b"bubblewrap")), ran.stderr.decode()


@pytest.mark.parametrize(
    "options",
    [
        {"provider": "docker"},
        {"provider": "docker", "image": "x", "isolation": "namespaces"},
        {"provider": "ray", "image": "x"},
        {"image": "x"},
        {"isolation": "none"},
        {"memory": 1},
    ],
)
def test_options_of_the_wrong_provider_are_refused(options):
    with pytest.raises(ValueError, match="validation error"):
        SandboxOptions(**options)


def test_an_unknown_provider_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(ValueError, match="there is no provider `dokcer`: there are local, docker, ray"):
        SandboxOptions(provider="dokcer")
