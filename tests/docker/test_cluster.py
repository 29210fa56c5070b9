"""The cluster of the compose file, for real: it serves, scales, and loses nothing when its NATS server is hurt."""

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp

from .conftest import ROOT, Containers, docker

DEADLINE_S = 300.0
LIMIT, REPEATS, CONCURRENCY = 40, 10, 32


def test_every_container_that_stays_is_healthy(containers: Containers) -> None:
    states = containers.states()
    assert states.pop(f"{containers.project}-auth-1")[0] == "exited"
    kinds = {name.removeprefix(f"{containers.project}-").removesuffix("-1"): state for name, state in states.items()}
    assert kinds == dict.fromkeys(
        ("agents", "bridge", "models", "nats", "resources", "services"), ("running", "healthy")
    )


def test_a_container_of_agents_has_one_password_and_no_power(containers: Containers) -> None:
    assert containers.inside("agents", "ls", "/auth").split() == ["agent.password"]
    assert containers.inside("agents", "id", "-u").strip() == "1000"
    powers = containers.inside("agents", "grep", "^Cap", "/proc/1/status").split()[1::2]
    assert set(powers) == {"0" * 16}


def test_programs_in_the_container_of_verifiers_get_namespaces_of_their_own(containers: Containers) -> None:
    program = (
        "import asyncio; from gymq.sandbox import LocalSandbox; "
        "sandbox = LocalSandbox(); asyncio.run(sandbox.start()); print(sandbox.describe())"
    )
    # Weaker where the engine gives the container no control group that it may change.
    assert re.match(r"namespaces( \(weaker\))?:", containers.inside("resources", "python", "-c", program))


def test_programs_in_the_container_of_verifiers_find_no_code_of_workers(containers: Containers) -> None:
    """The image holds gymq as an installed package, its workers in it."""
    program = (
        "import importlib.util as u, os, sys; names = ('gymq.cluster', 'gymq.workers', 'aiohttp'); "
        "print([name for name in names if u.find_spec(name)], "
        "[f for f, _, names in os.walk(sys.prefix) if 'laws.py' in names and os.stat(f + '/laws.py').st_size])"
    )
    code = (
        "import asyncio, sys\n"
        "from gymq.sandbox import Limits, LocalSandbox, Program\n"
        "async def main():\n"
        "    sandbox = LocalSandbox()\n"
        "    await sandbox.start()\n"
        f"    done = await sandbox.run(Program((sandbox.python, '-I', '-c', {program!r})), Limits())\n"
        "    print(done.stdout.decode(), done.stderr.decode())\n"
        "asyncio.run(main())"
    )
    assert containers.inside("resources", "python", "-c", code).strip() == "['aiohttp'] []"
    outside = containers.inside("resources", "python", "-c", program)
    assert "'gymq.cluster', 'gymq.workers', 'aiohttp'" in outside
    assert "newton_bench" in outside


async def test_a_row_that_is_posted_to_the_bridge_comes_back_with_its_reward(containers: Containers) -> None:
    row = json.loads((ROOT / "examples" / "demo" / "rows.jsonl").read_text().splitlines()[0])
    url = f"{containers.url_of_bridge()}/run"
    headers = {"Gymq-On-Untrainable": "allow"}
    async with aiohttp.ClientSession() as http, http.post(url, json=row, headers=headers) as response:
        result = await response.json()
        assert response.status == 200, result
    assert result["reward"] in (0.0, 1.0)
    assert result["expected_answer"] == row["expected_answer"]


async def test_the_bridge_tells_the_metrics_of_the_cluster(containers: Containers) -> None:
    url = f"{containers.url_of_bridge()}/metrics"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        text = await response.text()
        assert response.status == 200, text
    kinds = set(re.findall(r'^gymq_worker_load{.*kind="(\w+)"', text, re.MULTILINE))
    assert kinds == {"agents", "models", "resources"}


def collected(containers: Containers, name: str) -> list[dict[str, Any]]:
    text = containers.run("run", "--rm", "--no-deps", "--entrypoint", "cat", "collect", f"/runs/{name}.jsonl")
    return [json.loads(line) for line in text.splitlines()]


def arguments(name: str) -> list[str]:
    return ["collect", "--rows=/rows.jsonl", f"--output=/runs/{name}.jsonl", f"--limit={LIMIT}"]


def test_a_collection_in_a_container_of_its_own_has_every_rollout(containers: Containers) -> None:
    containers.gymq(*arguments("plain"))
    assert len(collected(containers, "plain")) == LIMIT


def test_more_containers_of_a_kind_are_more_workers(containers: Containers) -> None:
    containers.run(
        *("up", "--no-build", "--no-recreate", "--wait", "--scale=agents=3", "--scale=resources=2", "bridge")
    )
    workers = containers.status()["workers"]
    processes = {
        kind: {found["worker"] for found in workers if found["kind"] == kind} for kind in ("agents", "resources")
    }
    assert {kind: len(found) for kind, found in processes.items()} == {"agents": 3, "resources": 2}


@contextmanager
def frozen(container: str, network: str) -> Iterator[None]:
    docker("pause", container)
    yield
    docker("unpause", container)


@contextmanager
def killed(container: str, network: str) -> Iterator[None]:
    docker("kill", container)
    yield
    docker("start", container)


@contextmanager
def cut_off(container: str, network: str) -> Iterator[None]:
    docker("network", "disconnect", network, container)
    yield
    docker("network", "connect", "--alias", "nats", network, container)


def progress(collect: subprocess.Popen[str], beyond: int) -> int:
    """How many rollouts are done, once these are more than `beyond`."""
    assert collect.stdout is not None
    said = []
    for line in collect.stdout:
        said.append(line)
        found = re.match(r"([\d,]+)/[\d,]+ .*rollouts/s", line)
        if found and int(found[1].replace(",", "")) > beyond:
            return int(found[1].replace(",", ""))
    raise AssertionError("the collection has ended: " + "".join(said))


def test_nothing_is_lost_when_nats_is_hurt_while_rollouts_are_in_flight(containers: Containers) -> None:
    flags = (f"--num-repeats={REPEATS}", f"--concurrency={CONCURRENCY}")
    command = containers.command(*containers.of_client(*arguments("hurt"), *flags))
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as collect:
        done = 0
        for hurt in (frozen, killed, cut_off):
            done = progress(collect, done)
            assert done < LIMIT * REPEATS, "there is nothing left in flight"
            with hurt(f"{containers.project}-nats-1", f"{containers.project}_bus"):
                time.sleep(3.0)
        said = collect.communicate(timeout=DEADLINE_S)[0]
    assert collect.returncode == 0, said
    stored = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in collected(containers, "hurt"))
    assert stored == Counter((task, rollout) for task in range(LIMIT) for rollout in range(REPEATS))


def test_every_container_is_healthy_in_the_end(containers: Containers) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while bad := {name: state for name, state in containers.states().items() if state[1] not in ("healthy", "")}:
        assert time.monotonic() < give_up, bad
        time.sleep(1.0)
