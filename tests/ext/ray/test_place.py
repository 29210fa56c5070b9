"""Programs of agents on the nodes of a Ray cluster: nothing of them is left."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import gymq
from gymq.ext.ray import Ray
from gymq.ext.ray import sandbox as module
from tests.support.waiting import until

from .local_cluster import local_cluster

FAMILY = "echo $$ > {0}.part; (trap '' TERM; setsid sleep 600) & echo $! >> {0}.part; mv {0}.part {0}; sleep 600"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that runs nothing, and a node."""
    with local_cluster(1) as made:
        import ray

        ray.init(address=made.address, log_to_driver=False)
        yield made


def is_there(folder: Path) -> bool:
    return folder.is_dir()


def is_gone(family: Path) -> bool:
    return not any(psutil.pid_exists(int(pid)) for pid in family.read_text().split())


async def test_a_program_finds_the_files_of_the_one_before(cluster: Any) -> None:
    async with Ray(env={"NAME": "Ada"}) as place:
        await place.write("folder/of it/greeting", b"Hello")
        ended = await place.run("cat 'folder/of it/greeting'; echo \" $NAME $KEY\"", wall_s=60.0, env={"KEY": "k"})
    assert (ended.stdout, ended.exit_status, ended.limit) == (b"Hello Ada k\n", 0, None)


async def test_a_program_that_takes_too_long_is_ended_and_another_one_runs(cluster: Any) -> None:
    async with Ray() as place:
        ended = await place.run("echo began; sleep 600", wall_s=1.0)
        assert (ended.limit, ended.stdout) == ("time", b"began\n")
        assert (await place.run("echo again", wall_s=60.0)).stdout == b"again\n"


async def test_a_program_that_takes_too_much_memory_is_ended(cluster: Any) -> None:
    async with Ray(memory_mib=100) as place:
        ended = await place.run("python3 -c 'x = bytearray(10**9); input()'; sleep 600", wall_s=60.0)
        assert ended.limit == "memory"


async def test_a_cancelled_program_is_gone_with_its_children_and_another_one_runs(cluster: Any, tmp_path: Path) -> None:
    family = tmp_path / "pids"
    async with Ray() as place:
        running = asyncio.create_task(place.run(FAMILY.format(family), wall_s=600.0))
        await until(family.exists)
        running.cancel()
        await asyncio.wait([running])
        assert is_gone(family)
        assert (await place.run("echo again", wall_s=60.0)).stdout == b"again\n"


async def test_leaving_the_place_ends_all_and_removes_its_folder(cluster: Any, tmp_path: Path) -> None:
    family = tmp_path / "pids"
    async with Ray() as place:
        folder = Path((await place.run("pwd", wall_s=60.0)).stdout.decode().strip())
        assert is_there(folder)
        running = asyncio.create_task(place.run(FAMILY.format(family), wall_s=600.0))
        await until(family.exists)
    assert is_gone(family)
    assert not is_there(folder)
    with pytest.raises(gymq.ComponentFailed):
        await running


async def test_when_the_agents_process_is_killed_its_programs_end_and_the_next_one_removes_their_folder(
    cluster: Any, tmp_path: Path
) -> None:
    family, folder = tmp_path / "pids", tmp_path / "folder"
    script = f"pwd > {folder}; {FAMILY.format(family)}"
    driver = (
        "import asyncio\nfrom gymq.ext.ray import Ray\n"
        f"async def main():\n    async with Ray({cluster.address!r}) as place:\n"
        f"        await place.run({script!r}, wall_s=600.0)\nasyncio.run(main())"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", driver)
    await until(family.exists)
    process.kill()
    await process.wait()
    await until(lambda: is_gone(family))
    async with Ray(cluster.address):
        await until(lambda: not is_there(Path(folder.read_text().strip())))


async def test_a_place_that_no_node_has_room_for_is_a_failure(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_S", 1.0)
    with pytest.raises(gymq.ComponentFailed, match="no node with 1000 free CPUs within 1 s"):
        async with Ray(num_cpus=1000.0):
            pass


async def test_without_ray_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(gymq.ComponentFailed, match="gymq\\[ray\\]"):
        async with Ray():
            pass
