"""Starting, crashing, restarting and stopping a real nats-server."""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg

from gymq.cluster.server import EmbeddedServer, embedded, find_running
from gymq.cluster.server.config import LOG_MAX_BYTES
from gymq.errors import UsageError
from tests.support.waiting import DEADLINE_S

PARENT = """
import asyncio, sys
from pathlib import Path
from gymq.cluster.server import EmbeddedServer

async def main():
    async with EmbeddedServer(Path(sys.argv[1])) as server:
        print(server.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_started_server_answers_requests(server: EmbeddedServer) -> None:
    async with await nats.connect(server.url) as client:

        async def double(message: Msg) -> None:
            await client.publish(message.reply, message.data * 2)

        await client.subscribe("double", cb=double)
        assert (await client.request("double", b"ab", timeout=DEADLINE_S)).data == b"abab"


async def test_messages_survive_a_clean_restart(store: Path) -> None:
    async with EmbeddedServer(store) as server, await nats.connect(server.url) as client:
        await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
        await client.jetstream().publish("kept", b"still here")
    async with EmbeddedServer(store) as server, await nats.connect(server.url) as client:
        assert (await client.jetstream().get_last_msg("KEPT", "kept")).data == b"still here"


async def test_acknowledged_messages_survive_kill_and_restart_and_clients_come_back(server: EmbeddedServer) -> None:
    url = server.url
    back = asyncio.Event()

    async def on_reconnect() -> None:
        back.set()

    async with await nats.connect(
        url, max_reconnect_attempts=-1, reconnect_time_wait=0.05, reconnected_cb=on_reconnect
    ) as client:
        stream = client.jetstream()
        await stream.add_stream(name="KEPT", subjects=["kept"])
        for number in range(200):
            await stream.publish("kept", b"%d" % number)
        os.kill(server.pid, signal.SIGKILL)
        assert await server.wait() == -signal.SIGKILL
        await server.start()
        assert server.url == url
        await asyncio.wait_for(back.wait(), DEADLINE_S)
        assert (await stream.stream_info("KEPT")).state.messages == 200


async def test_two_servers_run_side_by_side(tmp_path: Path) -> None:
    async with (
        EmbeddedServer(tmp_path / "a") as a,
        EmbeddedServer(tmp_path / "b") as b,
        await nats.connect(a.url) as client_a,
        await nats.connect(b.url) as client_b,
    ):
        await client_a.jetstream().add_stream(name="ONLY_A", subjects=["a"])
        assert len(await client_a.jetstream().streams_info()) == 1
        assert await client_b.jetstream().streams_info() == []


async def test_stop_lets_the_server_close_its_files(store: Path) -> None:
    server = EmbeddedServer(store)
    await server.start()
    exit_status = asyncio.create_task(server.wait())
    await asyncio.sleep(0)
    await server.stop()
    assert await exit_status in (0, 1)  # nats-server says 1 after SIGTERM since 2.10
    assert "Server Exiting" in (store / "nats-server.log").read_text()
    assert not (store / "server.json").exists()


async def test_stop_may_be_called_twice_and_before_start(store: Path) -> None:
    server = EmbeddedServer(store)
    await server.stop()
    await server.start()
    await server.stop()
    await server.stop()
    assert await find_running(store) is None


async def test_a_server_whose_folder_was_removed_still_stops(store: Path) -> None:
    server = EmbeddedServer(store)
    await server.start()
    exit_status = asyncio.create_task(server.wait())
    await asyncio.sleep(0)
    shutil.rmtree(store)
    await server.stop()
    await exit_status


async def test_a_frozen_server_is_killed_at_the_deadline(store: Path) -> None:
    server = EmbeddedServer(store)
    await server.start()
    os.kill(server.pid, signal.SIGSTOP)
    exit_status = asyncio.create_task(server.wait())
    await asyncio.sleep(0)
    await server.stop(deadline_s=0.1)
    assert await exit_status == -signal.SIGKILL


async def test_a_stopped_server_starts_again_with_the_same_url(store: Path) -> None:
    server = EmbeddedServer(store)
    await server.start()
    url = server.url
    await server.stop()
    await server.start()
    try:
        assert server.url == url
    finally:
        await server.stop()


def test_started_and_stopped_from_different_event_loops(store: Path) -> None:
    server = EmbeddedServer(store)
    asyncio.run(server.start())
    try:
        assert asyncio.run(find_running(store)) == server.url
    finally:
        asyncio.run(server.stop())
    assert asyncio.run(find_running(store)) is None


async def test_ctrl_c_in_the_terminal_does_not_reach_the_server(server: EmbeddedServer) -> None:
    assert os.getsid(server.pid) == server.pid


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_the_server_dies_with_its_killed_parent_and_the_store_is_free_at_once(store: Path) -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, store, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    await parent.stdout.readline()
    assert await find_running(store) is not None
    parent.kill()
    await parent.wait()
    async with EmbeddedServer(store) as server:
        assert await find_running(store) == server.url


async def test_a_start_that_runs_out_of_time_leaves_nothing_behind(store: Path) -> None:
    with pytest.raises(UsageError, match="not ready in time"):
        await EmbeddedServer(store).start(deadline_s=0)
    async with EmbeddedServer(store) as server:
        assert await find_running(store) == server.url


async def test_a_cancelled_start_leaves_nothing_behind(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned = asyncio.Event()

    async def no_answer(host: str, port: int, timeout_s: float) -> None:
        spawned.set()
        await asyncio.sleep(600)

    with monkeypatch.context() as patch:
        patch.setattr(embedded, "read_info", no_answer)
        starting = asyncio.create_task(EmbeddedServer(store).start())
        await spawned.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    async with EmbeddedServer(store) as server:
        assert await find_running(store) == server.url


def logs_in(folder: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_size) for path in folder.glob("*log*"))


async def test_the_log_stays_bounded_over_many_starts(tmp_path: Path) -> None:
    for _ in range(3):
        with (tmp_path / "nats-server.log").open("ab") as log:
            log.write(b"x" * LOG_MAX_BYTES)
        async with EmbeddedServer(tmp_path):
            pass
    assert [name for name, _ in logs_in(tmp_path)] == ["nats-server.log", "nats-server.old.log"]
    assert sum(size for _, size in logs_in(tmp_path)) < 2 * LOG_MAX_BYTES


async def test_the_folder_may_have_any_name(tmp_path: Path) -> None:
    store = tmp_path / 'a "quoted" $HOME folder # of ünlikely name'
    async with EmbeddedServer(store) as server:
        assert await find_running(store) == server.url


async def test_a_relative_folder_stays_the_same_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = EmbeddedServer(Path("store"))
    monkeypatch.chdir("/")
    async with server:
        assert await find_running(tmp_path / "store") == server.url
