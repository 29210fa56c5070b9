"""Runtimes of trusted programs in containers."""

import asyncio

import psutil
import pytest

import gymq
from gymq.ext.containers import Apptainer, Docker, network_address
from tests.support.compatibility import record
from tests.support.owners import start_owner
from tests.support.waiting import DEADLINE_S, until
from tests.workers.agents.swe import needs_docker


async def test_a_program_that_takes_too_long_is_ended():
    needs_docker()
    await network_address()
    async with Docker("python:3.13-slim", life_s=120.0) as place:
        ended = await place.run("echo began; sleep 600", wall_s=5.0)
        assert (ended.limit, ended.stdout) == ("time", b"began\n")
        assert (await place.run("echo again", wall_s=30.0)).stdout == b"again\n"


async def test_a_container_reaches_nothing_but_this_machine():
    needs_docker()
    await network_address()
    async with Docker("python:3.13-slim", life_s=120.0) as place:
        script = "python3 -c \"import socket; socket.create_connection(('1.1.1.1', 80), 2)\""
        assert b"unreachable" in (await place.run(script, wall_s=30.0)).stderr


async def test_variables_are_on_no_command_line():
    needs_docker()
    await network_address()
    async with Docker("python:3.13-slim", life_s=120.0) as place:
        ended = await place.run("echo $KEY", wall_s=30.0, env={"KEY": "secret-of-a-test"})
        assert ended.stdout == b"secret-of-a-test\n"


async def test_a_program_that_takes_too_much_memory_is_ended_and_nothing_else():
    needs_docker()
    await network_address()
    async with Docker("python:3.13-slim", life_s=120.0, memory_mib=64) as place:
        ended = await place.run("python3 -c 'x = bytearray(10**9)'", wall_s=60.0)
        assert ended.limit == "memory"
        assert (await place.run("echo lives", wall_s=30.0)).stdout == b"lives\n"


async def test_a_container_that_is_lost_is_a_failure():
    needs_docker()
    await network_address()
    async with Docker("python:3.13-slim", life_s=120.0) as place:
        await place.stop()
        with pytest.raises(gymq.ComponentFailed, match="is gone"):
            await place.run("true", wall_s=30.0)


async def test_an_image_that_is_not_there_is_a_failure():
    needs_docker()
    await network_address()
    with pytest.raises(gymq.ComponentFailed, match="no container of gymq-no-such-image"):
        async with Docker("gymq-no-such-image", life_s=120.0):
            pass


def mock_apptainer(folder, monkeypatch):
    """A mock of `apptainer`: notes how it is called, and runs what it is given, with its caller's environment.

    So does `apptainer exec`, but with `--cleanenv`.
    """
    program = folder / "apptainer"
    program.write_text(
        f'#!/bin/bash\necho "$@" >> {folder}/calls\nenv >> {folder}/environment\n'
        f'[ "$2" = stop ] && [ -e {folder}/program ] && kill $(cat {folder}/program)\n'
        f'[ "$1" = exec ] || exit 0\necho $$ > {folder}/program\nshift\n'
        '[ "$1" = --cleanenv ] && shift && clean="env -i PATH=$PATH"\nshift\n'
        'exec $clean env KEY=$APPTAINERENV_KEY "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


async def test_apptainer_is_called_as_it_wants_to_be(tmp_path, monkeypatch):
    mock_apptainer(tmp_path, monkeypatch)
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "secret")
    monkeypatch.setenv("LC_TELEPHONE", "also-not-for-programs")
    async with Apptainer("/images/a.sif", life_s=60.0, memory_mib=512, folders={"/harness": "/opt/harness"}) as place:
        ended = await place.run("echo $KEY $SECRET_OF_THE_WORKER $LC_TELEPHONE", wall_s=60.0, env={"KEY": "k"})
    assert ended.stdout == b"k\n"
    assert "SECRET_OF_THE_WORKER" not in (tmp_path / "environment").read_text()
    start, inside, stop = (tmp_path / "calls").read_text().splitlines()
    isolation = "--containall --cleanenv --writable-tmpfs --bind /opt/harness:/harness:ro"
    assert start == f"instance start {isolation} /images/a.sif {place.name}"
    assert inside.startswith(
        f"exec --cleanenv instance://{place.name} timeout --signal=KILL 60.000 sh -c ulimit -v 524288; "
    )
    assert stop == f"instance stop {place.name}"
    what = "an instance with a time limit, a memory limit and folders, without the worker's variables"
    record("Apptainer: where agents run", "commands of 1.4", "a mock of its command", what)


@pytest.mark.parametrize(("life_s", "is_killed"), [(600.0, True), (0.5, False)])
async def test_an_instance_ends_after_its_life_and_with_its_process(tmp_path, monkeypatch, life_s, is_killed):
    mock_apptainer(tmp_path, monkeypatch)
    owner, (pid,) = await start_owner(
        tmp_path, "", "$$", f"'image', life_s={life_s}", "Apptainer", "gymq.ext.containers"
    )
    if is_killed:
        owner.kill()
    await asyncio.wait_for(owner.wait(), DEADLINE_S)
    await until(lambda: not psutil.pid_exists(int(pid)))
    assert (tmp_path / "calls").read_text().splitlines()[-1].startswith("instance stop gymq-harness-")


async def test_containers_have_few_privileges_and_do_not_reach_each_other(tmp_path, monkeypatch):
    """A mock of `docker` that notes how it is called and with which variables; no network is there at first."""
    program = tmp_path / "docker"
    program.write_text(
        f'#!/bin/bash\necho "$@" >> {tmp_path}/calls\nenv >> {tmp_path}/environment\n'
        f'if [ "$1 $2" = "network create" ]; then touch {tmp_path}/made; fi\n'
        f'if [ "$1 $2" = "network inspect" ]; then [ -f {tmp_path}/made ] && echo 10.0.0.1; fi\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "secret")
    assert await network_address() == "10.0.0.1"
    async with Docker("image", life_s=60.0):
        pass
    calls = (tmp_path / "calls").read_text().splitlines()
    (network,) = [call for call in calls if call.startswith("network create")]
    assert "--internal" in network
    assert "com.docker.network.bridge.enable_icc=false" in network
    (run,) = [call for call in calls if call.startswith("run")]
    assert f"--network {network.split()[-1]}" in run
    assert "--security-opt no-new-privileges --cap-drop ALL" in run
    assert not {"NET_RAW", "SYS_ADMIN", "MKNOD", "SYS_CHROOT"} & set(run.split())
    assert "SECRET_OF_THE_WORKER" not in (tmp_path / "environment").read_text()
