"""The environment server: its protocol, and the client of verifiers 0.4.0 in a Python of its own."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.launch import Cluster
from gymq.config import load
from gymq.data.records import Record
from gymq.data.trainer_results import encode_result
from gymq.errors import UsageError
from gymq.ext.verifiers import env_server as server_module
from gymq.ext.verifiers.env_server import EnvServer
from gymq.ext.verifiers.serving import check_address
from gymq.protocol.messages import Outcome, VerifiedRollout
from gymq.trainer import TrainingRun
from tests.support.compatibility import record
from tests.support.engine import Body, say
from tests.support.environments import Counter
from tests.support.experts import with_experts
from tests.support.waiting import DEADLINE_S, until, until_answer
from tests.support.world import World
from tests.trainer.training import kill_worker

zmq: Any = pytest.importorskip("zmq", reason="needs pip install 'gymq[prime-rl]'")
pytest.importorskip("zmq.asyncio")

ROOT = Path(__file__).parents[3]
ROWS_TASKSET = ROOT / "examples" / "trainers" / "prime_rl"
PYTHON = os.environ.get("GYMQ_VERIFIERS_PYTHON", "")
needs_verifiers = pytest.mark.skipif(
    not PYTHON, reason="GYMQ_VERIFIERS_PYTHON names no Python with verifiers 0.4; `make test-in NAME=verifiers` sets it"
)

Row = dict[str, Any]
SLOW_S = 600.0  # on a busy machine
ANYWHERE = "tcp://127.0.0.1:0"


@pytest.fixture
async def server(training: TrainingRun) -> AsyncIterator[EnvServer]:
    async with EnvServer(training, ANYWHERE) as made:
        yield made


class Connection:
    """A client that writes frames itself."""

    def __init__(self, address: str) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(address)

    async def send(self, *frames: bytes) -> None:
        await self._socket.send_multipart(frames)

    async def receive(self) -> tuple[bytes, bytes, Any]:
        async with asyncio.timeout(DEADLINE_S):
            request_id, kind, body = await self._socket.recv_multipart()
        return request_id, kind, msgspec.msgpack.decode(body)

    async def is_readable(self, wait_s: float) -> bool:
        return bool(await self._socket.poll(1000 * wait_s))

    async def ask(self, method: str, body: Any, request_id: bytes = b"1") -> Any:
        """The reply to a request that has no rollout."""
        encoded = body if isinstance(body, bytes) else msgspec.msgpack.encode(body)
        await self.send(request_id, method.encode(), encoded)
        found, kind, reply = await self.receive()
        assert (found, kind) == (request_id, b"reply")
        return reply

    def close(self) -> None:
        self._context.destroy(0)


@pytest.fixture
def connect() -> Iterator[Callable[[EnvServer], Connection]]:
    """Connect to a server until the end of the test."""
    with ExitStack() as stack:

        def made(server: EnvServer) -> Connection:
            return stack.enter_context(closing(Connection(server.address)))

        yield made


@pytest.fixture
def connection(server: EnvServer, connect: Callable[[EnvServer], Connection]) -> Connection:
    return connect(server)


def request(row: Any, **changed: Any) -> Row:
    """A request for a rollout, as the client of verifiers sends it."""
    sampling = {"temperature": 0.5, "top_p": None, "max_tokens": 8, "reasoning_effort": None, "logprobs": True}
    data = {
        "idx": 0,
        "prompt": None,
        "timeout": {"agent": None},
        "row": row if isinstance(row, str) else json.dumps(row),
    }
    return {"task_data": data, "client": {"type": "train"}, "model": "policy", "sampling": sampling} | changed


BAD_BODY = {"responses_create_params": {"input": "x", "metadata": {"extra_body": "{"}}}


async def test_health_is_answered_and_malformed_messages_cost_only_themselves(connection: Connection) -> None:
    await connection.send(b"only one frame")
    await connection.send(b"1", b"run", b"{}", b"one too many")
    assert await connection.ask("health", b"\xc1 no msgpack") == {"success": True, "error": None}


@pytest.mark.parametrize(
    ("method", "body", "reason"),
    [
        ("stop", {}, "unknown method b'stop'"),
        ("run", b"\xc1", "MessagePack data is malformed"),
        ("run", {}, "missing required field `task_data`"),
        ("run", request("no JSON"), "not valid JSON"),
        ("run", request("[]"), "not an object"),
        ("run", request({}), "the row has no prompt"),
        ("run", request({"responses_create_params": 1}), "must be an object, not 1"),
        ("run", request({"responses_create_params": {"input": "x"}}), "agent_ref"),
        ("run", request("x", task_data={"row": 1}), "gymq_rows: the data set needs the column `row`"),
        ("run", request('{"responses_create_params": ' + "[" * 100_000), "nested too deeply"),
        (
            "run",
            request({"responses_create_params": {"input": "x", "metadata": 1}}, sampling={"n": 1}),
            "must be the text of a JSON object, to which n go",
        ),
        ("run", request(BAD_BODY, sampling={"n": 1}), "metadata.extra_body` must be"),
        ("cancel", {"request_id": 1}, "Expected `str`"),
    ],
)
async def test_a_request_that_cannot_be_used_is_refused_with_the_reason(
    connection: Connection, method: str, body: Any, reason: str
) -> None:
    reply = await connection.ask(method, body)
    assert reply["success"] is False
    assert reason in reply["error"]
    assert (await connection.ask("health", {}))["success"]


@pytest.mark.usefixtures("no_patience")
async def test_an_agent_that_does_not_run_is_named(connection: Connection) -> None:
    reply = await connection.ask(
        "run", request({"responses_create_params": {"input": "x"}, "agent_ref": {"name": "none"}})
    )
    assert reply == {"success": False, "error": "no agent named 'none' is running; `gymq status` lists those that are"}


async def test_a_frame_that_is_too_large_ends_its_connection_only(
    training: TrainingRun, connect: Callable[[EnvServer], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_FRAME_BYTES", 1000)
    async with EnvServer(training, ANYWHERE) as server:
        large, other = connect(server), connect(server)
        await large.send(b"1", b"run", bytes(1001))
        assert (await other.ask("health", {}))["success"]

        async def health() -> bool:
            """Ask again: what is sent before the old connection is known to be lost goes with it."""
            await large.send(b"2", b"health", msgspec.msgpack.encode({}))
            return await large.is_readable(0.2)

        await until_answer(health)
        assert await large.receive() == (b"2", b"reply", {"success": True, "error": None})


async def test_rollouts_above_the_limit_are_refused(
    world: World, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.engine.turn = until_cancelled
    monkeypatch.setattr(server_module, "MOST_IN_FLIGHT", 1)
    body = msgspec.msgpack.encode(request(world.row()))
    await connection.send(b"1", b"run", body)
    reply = await connection.ask("run", body, b"2")
    assert reply["error"] == "1 rollouts are in flight; repeat the request later"


async def test_only_the_client_that_asked_cancels_a_rollout(
    world: World, server: EnvServer, connection: Connection, connect: Callable[[EnvServer], Connection]
) -> None:
    world.engine.turn = until_cancelled
    other = connect(server)
    await connection.send(b"1", b"run", msgspec.msgpack.encode(request(world.row())))
    await until(lambda: world.engine.requests)
    assert (await other.ask("cancel", {"request_id": "1"}))["cancelled"] is False
    await connection.send(b"2", b"cancel", msgspec.msgpack.encode({"request_id": "1"}))
    replies = {request_id: reply for request_id, _, reply in [await connection.receive(), await connection.receive()]}
    assert replies == {
        b"1": {"success": False, "error": "cancelled"},
        b"2": {"success": True, "error": None, "cancelled": True},
    }
    await until(lambda: world.engine.num_dropped)
    assert (await connection.ask("cancel", {"request_id": "1"}))["cancelled"] is False


async def test_a_server_that_stops_cancels_rollouts_and_informs_their_callers(
    world: World, training: TrainingRun, connect: Callable[[EnvServer], Connection]
) -> None:
    world.engine.turn = until_cancelled
    async with EnvServer(training, ANYWHERE) as server:
        connection = connect(server)
        await connection.send(b"1", b"run", msgspec.msgpack.encode(request(world.row())))
        await until(lambda: world.engine.requests)
    _, kind, reply = await connection.receive()
    assert (kind, reply["success"]) == (b"reply", False)
    await until(lambda: world.engine.num_dropped)


async def test_an_address_in_use_is_an_error(training: TrainingRun, server: EnvServer) -> None:
    with pytest.raises(UsageError, match=r"cannot listen at .*: Address already in use"):
        EnvServer(training, server.address)


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:5000", "tcp://example.org:5000", "tcp://[::]:5000"])
def test_addresses_that_other_machines_reach_need_an_option(address: str) -> None:
    with pytest.raises(UsageError, match="add --exposed"):
        check_address(address, exposed=False)
    check_address(address, exposed=True)


@pytest.mark.parametrize(
    "address", ["ipc://socket", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "127.0.0.1:5000", "tcp://[::1"]
)
def test_other_transports_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match="not of the form tcp://HOST:PORT"):
        check_address(address, exposed=True)


# With the client of verifiers -----------------------------------------------------------------------------------------


async def until_cancelled(body: Body) -> Body:
    await asyncio.Event().wait()
    return say("never")


class Client:
    """The client of verifiers in a process of its own, which takes seconds to import."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("verifiers_client.py")
        env = {**os.environ, "PYTHONPATH": str(ROWS_TASKSET)}
        self._process = subprocess.Popen([PYTHON, str(script)], stdin=subprocess.PIPE, text=True, env=env)
        self.folder = Path()

    def start(self, address: str, rows: list[Row], **options: Any) -> None:
        file = self.folder / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        defaults: Row = {"agent": None, "repeats": 1, "client": "train", "sampling": {}}
        paths = {"address": address, "rows": str(file), "output": str(self.folder / "found.json")}
        self._write({**defaults, **options, **paths})

    def cancel(self) -> None:
        self._write("cancel")

    async def found(self) -> list[Any]:
        """What came back for each row."""
        output = self.folder / "found.json"
        await until(lambda: output.exists() or self._process.poll() is not None, deadline_s=SLOW_S)
        found: list[Any] = json.loads(output.read_text())
        output.unlink()
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _write(self, line: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()


@pytest.fixture(scope="module")
def started_client() -> Iterator[Client]:
    made = Client()
    yield made
    made.close()


@pytest.fixture
def client(started_client: Client, tmp_path: Path) -> Client:
    started_client.folder = tmp_path
    return started_client


def stored_tokens(outcome: Outcome) -> list[Row]:
    """The sequences of an outcome in the store, as the branches of a trace show them."""
    result = msgspec.json.decode(encode_result(outcome, "error"))
    records = [Record.of(result), *Record.branches_of(result)]
    return [
        {
            "token_ids": record.token_ids,
            "mask": [bool(sampled) for sampled in record.is_sampled()],
            "log_probs": record.log_probs,
            "experts": None if (experts := record.experts()) is None else [*experts.tolist(), experts[-1].tolist()],
        }
        for record in records
    ]


@needs_verifiers
async def test_a_rollout_with_tools_is_a_graph_of_its_messages(
    world: World, server: EnvServer, client: Client, run: str
) -> None:
    await world.add_resources("counter", Counter())
    await world.add_agent("adder", "counter")

    def turn(body: Body) -> Body:
        if body["messages"][-1]["role"] == "tool":
            return say("The sum is 5.", reasoning="so")
        return say(None, ("add", {"amount": 3}), reasoning="think")

    world.engine.turn = turn
    world.engine.spoil = with_experts
    row = world.row("add 3", agent="adder", start=2, expected=5, params={"instructions": "Be brief.", "tools": [ADD]})
    client.start(server.address, [row], sampling=SAMPLING)
    (found,) = await client.found()
    (trace,) = found["traces"]
    assert (found["ok"], trace["ok"], trace["reward"], trace["metrics"]) == (True, True, 1.0, {"total": 5.0})
    assert [message["role"] for message in trace["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert trace["messages"][2]["tool_calls"][0]["arguments"] == '{"amount": 3}'
    assert [trace["messages"][at]["reasoning_content"] for at in (2, 4)] == ["think", "so"]
    assert json.loads(trace["messages"][3]["content"]) == {"total": 5}
    assert trace["num_turns"] == 2
    ((_, outcome),) = [one async for one in world.outcomes.read(run)]
    assert trace["branches"] == stored_tokens(outcome)
    experts = trace["branches"][0]["experts"]
    assert experts == [[[token, 1]] for token in range(len(experts) - 1)] + experts[-2:-1]
    assert trace["num_tokens"][1] == sum(trace["branches"][0]["mask"])
    assert sum(trace["num_tokens"]) == len(trace["branches"][0]["token_ids"])
    assert trace["info"]["gymq"]["run"] == run
    assert 0 < trace["seconds"] < DEADLINE_S
    asked = world.engine.requests[0]
    assert {name: asked[name] for name in SAMPLING} == SAMPLING


SAMPLING = {"temperature": 0.25, "top_p": 0.5, "max_tokens": 77, "top_k": 3, "cache_salt": "4"}
ADD = {
    "type": "function",
    "name": "add",
    "description": "Add to the sum.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"amount": {"type": "integer"}},
        "required": ["amount"],
        "additionalProperties": False,
    },
}


@needs_verifiers
async def test_a_history_that_was_rewritten_is_a_branch(
    world: World, server: EnvServer, client: Client, run: str
) -> None:
    await world.add_resources("counter", Counter())
    await world.add_agent("adder", "counter")
    world.engine.drop_reasoning = True  # the template renders earlier turns again, so no prompt continues the last
    world.engine.turn = lambda body: (
        say("done") if body["messages"][-1]["role"] == "tool" else say(None, ("add", {"amount": 3}))
    )
    row = world.row("add 3", agent="adder", start=2, expected=5, params={"tools": [ADD]})
    client.start(server.address, [row])
    (found,) = await client.found()
    ((_, outcome),) = [one async for one in world.outcomes.read(run)]
    branches = found["traces"][0]["branches"]
    assert len(branches) == 2
    assert branches == stored_tokens(outcome)


@needs_verifiers
async def test_failures_are_errors_and_never_rewards(world: World, server: EnvServer, client: Client) -> None:
    rows = [
        world.row("say done"),
        world.row("say done", verdict={"fails": {"class": "invalid_task"}}),
        world.row("say done", verdict={"reward": 0.0}),
        world.row("say done", verdict={"mask_sample": True}),
        {"agent_ref": {"name": world.name("asker")}},
    ]
    client.start(server.address, rows)
    right, failed, wrong, masked, refused = await client.found()
    assert (right["traces"][0]["reward"], wrong["traces"][0]["reward"]) == (1.0, 0.0)
    assert (failed["ok"], failed["traces"]) == (False, [])
    (error,) = failed["errors"]
    assert (error["type"], error["status_code"]) == ("invalid_task", 422)
    assert "as the row asks" in error["message"]
    # In the baseline of its group, and out of the loss.
    (trace,) = masked["traces"]
    assert (trace["trainable"], trace["has_error"], trace["reward"], trace["num_turns"]) == (True, False, 1.0, 1)
    assert not any(trace["branches"][0]["mask"])
    assert trace["branches"][0]["token_ids"] == right["traces"][0]["branches"][0]["token_ids"]
    assert refused["raised"].endswith("rows.jsonl:5): the row has no prompt: its fields are agent_ref")


@needs_verifiers
async def test_rollouts_without_tokens_are_for_evaluation_only(world: World, server: EnvServer, client: Client) -> None:
    await world.add_model("plain", return_token_id_information=False)
    model = {"type": "responses_api_models", "name": world.name("plain")}
    await world.add_agent("evaluated", "grader", model_server=model)
    rows = [world.row("say done", agent="evaluated")]
    client.start(server.address, rows, client="eval")
    (found,) = await client.found()
    (trace,) = found["traces"]
    assert (trace["reward"], trace["num_turns"], trace["branches"][0]["token_ids"]) == (1.0, 1, [])
    assert trace["messages"][-1]["content"] == "done"
    client.start(server.address, rows, client="train")
    (found,) = await client.found()
    assert (found["traces"], found["errors"][0]["type"]) == ([], "no_token_ids")


@needs_verifiers
async def test_a_client_that_cancels_stops_the_rollout(world: World, server: EnvServer, client: Client) -> None:
    world.engine.turn = until_cancelled
    client.start(server.address, [world.row()])
    await until(lambda: world.engine.requests, deadline_s=SLOW_S)
    client.cancel()
    assert await client.found() == [{"cancelled": True}]
    await until(lambda: world.engine.num_dropped)


@asynccontextmanager
async def command(folder: Path, url: str, run: str) -> AsyncIterator[str]:
    """`gymq env-server` in a process of its own; its address."""
    process = await asyncio.create_subprocess_exec(
        *(
            str(Path(sys.executable).with_name("gymq")),
            "env-server",
            "--address",
            ANYWHERE,
            "--run",
            run,
            "--nats",
            url,
        ),
        stdout=asyncio.subprocess.PIPE,
        cwd=folder,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            line = (await process.stdout.readline()).decode().split()
        yield line[-1]
    finally:
        process.terminate()
        await process.wait()
    assert process.returncode == 0


@needs_verifiers
async def test_two_hundred_rollouts_survive_the_death_of_their_agent(tmp_path: Path, run: str, client: Client) -> None:
    simulated = "policy_model.responses_api_models.simulated_model"
    # Some replies come at once, so that a rollout is stored while most others are in flight.
    slow = [f"++{simulated}.latency_s=3", f"++{simulated}.latency_distribution=exponential"]
    config = load(
        ["workers/resources/mcqa/config.yaml", "workers/models/simulated_model/config.yaml"],
        [f"++{simulated}.token_ids=true", *slow],
    )
    row = {"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "B"}
    rows = [{**row, "responses_create_params": {"input": f"Question {at}: A or B?"}} for at in range(25)]
    async with (
        Cluster(config.instances, folder=tmp_path / "cluster", log_level="warning") as cluster,
        command(tmp_path, cluster.url, run) as address,
    ):
        bus = await Bus.connect(cluster.url, role="test", name="test")

        async def stored() -> list[Outcome]:
            return [outcome async for _, outcome in OutcomeStore(bus).read(run)]

        client.start(address, rows, agent="mcqa_simple_agent", repeats=8)
        assert len(await until_answer(stored)) < 200
        kill_worker(cluster, "mcqa_simple_agent")
        found = await client.found()
        outcomes = await stored()
        await bus.close()
    assert len(found) == len(outcomes) == 200
    by_task = {outcome.task_index: outcome for outcome in outcomes}
    assert len(by_task) == 200
    for episode in found:
        (trace,) = episode["traces"]
        outcome = by_task.pop(trace["info"]["gymq"]["task_index"])
        assert isinstance(outcome, VerifiedRollout)
        assert trace["reward"] == outcome.reward
        assert trace["branches"] == stored_tokens(outcome)
    record(
        "verifiers: its client, which prime-rl uses",
        "0.4.0",
        "its package, simulated_model",
        "200 rollouts by `gymq env-server`, an agent killed: tokens, log probs and rewards equal to those stored",
    )
