"""New weights reach every replica of a model, those that run and those that start later, and each says so."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import gymq
from gymq.bus import Bus, BusError, NoResponders, connection, streams
from gymq.bus.discovery import ServiceListing
from gymq.bus.jetstream import Code, JetStreamError
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.bus.weights import Pushed, push, pushing
from gymq.errors import UsageError
from gymq.execution.model_runner import ModelRunner
from gymq.model import ModelRequest, WeightsUpdate
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Generate, Generated
from gymq.protocol.replica_messages import Weights
from gymq.testing import reply
from tests.support.waiting import DEADLINE_S, until, until_answer


def safetensors(text: bytes) -> bytes:
    """One tensor of bytes in a file of the safetensors format."""
    tensor = {"t": {"dtype": "U8", "shape": [len(text)], "data_offsets": [0, len(text)]}}
    header = json.dumps(tensor).encode()
    return len(header).to_bytes(8, "little") + header + text


def tensor_of(file: bytes) -> bytes:
    return file[8 + int.from_bytes(file[:8], "little") :]


class Echo(gymq.Model):
    """Answers with its weights."""

    def __init__(self, name: str, *, is_picky: bool = False) -> None:
        super().__init__(name=name)
        self.is_picky = is_picky
        self.weights = b"as started"
        self.updates: list[WeightsUpdate] = []
        self.go = asyncio.Event()
        self.go.set()

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        return reply(self.weights[:40].decode())

    async def load_weights(self, update: WeightsUpdate) -> None:
        self.updates.append(update)
        await self.go.wait()
        if update.policy_version == "bad" or self.is_picky:
            raise ValueError("a tensor is missing")
        body = await asyncio.to_thread(Path(update.path).read_bytes) if update.path else update.weights
        assert body is not None
        self.weights = tensor_of(body)


class Fixed(gymq.Model):
    """Loads nothing."""

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        return reply("fixed")


class Replicas:
    """Starts replicas as a worker process does, and ends them."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self.buses: dict[str, Bus] = {}
        self.runners: dict[str, ModelRunner] = {}

    async def start(self, worker: str, model: gymq.Model | None = None) -> Any:
        bus = self.buses[worker] = await Bus.connect(self.url, role="model", name=worker)
        server = Server(bus, worker)
        await server.start()
        started = model or Echo(self.name)
        runner = self.runners[worker] = ModelRunner(started)
        await runner.serve(server)
        served = [service.subject for service in server.services]
        listing = ServiceListing(
            bus,
            name=self.name,
            worker=worker,
            kind="models",
            implementation="echo",
            subjects=served,
            stats=runner.stats,
        )
        await listing.start()
        await bus.flush()
        return started

    async def kill(self, worker: str) -> None:
        await self.buses.pop(worker).close()
        await self.runners.pop(worker).stop()


@pytest.fixture
async def replicas(shared_url: str, run: str) -> AsyncIterator[Replicas]:
    started = Replicas(shared_url, run)
    yield started
    for worker in list(started.runners):
        await started.kill(worker)


async def ask(bus: Bus, model: str, worker: str) -> Generated:
    request = Generate(rollout="r/0/0", timeout_s=30.0, params={"input": []}, session="s")
    async with asyncio.timeout(DEADLINE_S):
        generated = await Calls(bus).call(subjects.REPLICA.of(model, worker), request)
    assert isinstance(generated, Generated)
    return generated


async def answer_of(bus: Bus, model: str, worker: str) -> tuple[str, list[str]]:
    generated = await ask(bus, model, worker)
    return generated.response["output"][0]["content"][0]["text"], generated.policy_versions


async def num_parts(bus: Bus, model: str) -> int:
    return len(await bus.js.count_by_subject(streams.WEIGHTS, subjects.WEIGHTS_PART.of(model)))


async def test_all_replicas_answer_with_the_bytes_that_were_pushed(bus: Bus, replicas: Replicas, run: str) -> None:
    await replicas.start("a")
    await replicas.start("b")
    assert await answer_of(bus, run, "a") == ("as started", [])
    pushed = await push(bus, run, "v1", weights=safetensors(b"one"))
    assert pushed == Pushed("v1", ["a", "b"], {})
    assert await answer_of(bus, run, "a") == await answer_of(bus, run, "b") == ("one", ["v1"])


async def test_a_path_is_told_as_it_is(bus: Bus, replicas: Replicas, run: str, tmp_path: Path) -> None:
    model = await replicas.start("a")
    file = tmp_path / "w.safetensors"
    file.write_bytes(safetensors(b"on disk"))
    assert (await push(bus, run, "v1", path=file, mode="abort")).is_complete
    assert model.updates == [WeightsUpdate("v1", str(file), None, "abort")]
    assert await answer_of(bus, run, "a") == ("on disk", ["v1"])


async def test_a_file_larger_than_a_message_arrives_whole(
    bus: Bus, replicas: Replicas, run: str, tmp_path: Path
) -> None:
    model = await replicas.start("a")
    file = tmp_path / "w.safetensors"
    file.write_bytes(safetensors(bytes(range(256)) * (2 * bus.max_body_bytes // 256 + 3)))
    assert (await push(bus, run, "v1", weights=file)).is_complete
    assert model.updates[0].weights == file.read_bytes()
    assert await num_parts(bus, run) == 3


@pytest.mark.nightly
async def test_only_the_newest_weights_are_kept(bus: Bus, replicas: Replicas, run: str, tmp_path: Path) -> None:
    await replicas.start("a")
    for number in range(3):
        assert (await push(bus, run, f"v{number}", weights=safetensors(b"x%d" % number))).is_complete
        assert await num_parts(bus, run) == 1
    file = tmp_path / "w.safetensors"
    file.write_bytes(safetensors(b"elsewhere"))
    assert (await push(bus, run, "elsewhere", path=file)).is_complete
    assert await num_parts(bus, run) == 0


async def test_a_replica_that_starts_later_serves_the_newest_weights_from_its_first_call(
    bus: Bus, replicas: Replicas, run: str
) -> None:
    await replicas.start("a")
    await push(bus, run, "v1", weights=safetensors(b"one"))
    await push(bus, run, "v2", weights=safetensors(b"two"))
    late = await replicas.start("late")
    assert [update.policy_version for update in late.updates] == ["v2"]
    assert await answer_of(bus, run, "late") == ("two", ["v2"])


async def test_a_push_waits_until_the_slowest_replica_has_loaded(bus: Bus, replicas: Replicas, run: str) -> None:
    await replicas.start("a")
    slow = await replicas.start("slow")
    slow.go.clear()
    pushing = asyncio.create_task(push(bus, run, "v1", weights=safetensors(b"one")))
    await until(lambda: slow.updates)
    assert not pushing.done()
    assert await answer_of(bus, run, "slow") == ("as started", [])
    slow.go.set()
    assert (await pushing).confirmed == ["a", "slow"]


async def test_a_replica_that_dies_in_the_middle_holds_nobody_up_and_comes_back_with_the_newest(
    bus: Bus, replicas: Replicas, run: str
) -> None:
    await replicas.start("a")
    dying = await replicas.start("dying")
    dying.go.clear()
    pushing = asyncio.create_task(push(bus, run, "v1", weights=safetensors(b"one")))
    await until(lambda: dying.updates)
    await replicas.kill("dying")
    assert await pushing == Pushed("v1", ["a"], {})
    await replicas.start("again")
    assert await answer_of(bus, run, "again") == ("one", ["v1"])


async def test_replicas_that_are_known_are_not_looked_for(
    bus: Bus, replicas: Replicas, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replicas.start("a")
    first = await push(bus, run, "v1", weights=safetensors(b"one"))

    async def look(*_: object, **__: object) -> list[dict[str, Any]]:
        raise AssertionError("the replicas are known")

    monkeypatch.setattr("gymq.bus.weights.pushing.find_workers", look)
    assert await push(bus, run, "v2", weights=safetensors(b"two"), known=first.confirmed) == Pushed("v2", ["a"], {})
    await replicas.start("new")
    pushed = await push(bus, run, "v3", weights=safetensors(b"three"), known=["a", "gone"])
    assert pushed == Pushed("v3", ["a", "new"], {})


async def test_a_replica_that_does_not_load_in_time_is_told_and_continues_with_the_old(
    bus: Bus, replicas: Replicas, run: str
) -> None:
    await replicas.start("a")
    slow = await replicas.start("slow")
    slow.go.clear()
    pushed = await push(bus, run, "v1", weights=safetensors(b"one"), deadline_s=0.5)
    assert pushed.missing["slow"] == "not loaded within 0.5 s"
    await until_answer(lambda: answer_of(bus, run, "a"), lambda answer: answer == ("one", ["v1"]))
    assert await answer_of(bus, run, "slow") == ("as started", [])
    slow.go.set()


async def test_weights_that_no_replica_can_load_are_told_with_the_reason_and_taken_back(
    bus: Bus, replicas: Replicas, run: str
) -> None:
    model = await replicas.start("a")
    await push(bus, run, "v1", weights=safetensors(b"one"))
    pushed = await push(bus, run, "bad", weights=safetensors(b"two"))
    assert pushed.missing == {"a": f"{run} cannot load the weights 'bad': ValueError: a tensor is missing"}
    assert pushed.taken_back
    assert await answer_of(bus, run, "a") == ("one", ["v1"])
    assert await num_parts(bus, run) == 1
    await replicas.start("later")
    assert await answer_of(bus, run, "later") == ("one", ["v1"])
    assert (await push(bus, run, "v2", weights=safetensors(b"two"))).confirmed == ["a", "later"]
    assert [update.policy_version for update in model.updates] == ["v1", "bad", "v2"]  # nothing was loaded twice


async def test_a_push_after_a_reconnect_waits_for_replicas_that_are_not_back_yet(
    bus: Bus, replicas: Replicas, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await replicas.start("a")
    model.go.clear()
    request, asked = bus.request, asyncio.Event()

    async def unheard(subject: str, *arguments: Any, **options: Any) -> Any:
        if subject == subjects.PING.of("model", "a"):
            asked.set()
            raise NoResponders("as just after a reconnect")
        return await request(subject, *arguments, **options)

    monkeypatch.setattr(connection, "SETTLING_S", 1000.0)
    monkeypatch.setattr(bus, "_reconnected_at", time.monotonic())
    monkeypatch.setattr(bus, "request", unheard)
    pushing = asyncio.create_task(push(bus, run, "v1", weights=safetensors(b"one")))
    for _ in range(3):
        asked.clear()
        await until(lambda: asked.is_set() or pushing.done())
    model.go.set()
    assert (await pushing).confirmed == ["a"]


async def test_a_model_whose_loading_is_cancelled_inside_has_refused_and_takes_the_next(
    bus: Bus, replicas: Replicas, run: str
) -> None:
    class Broken(Echo):
        async def load_weights(self, update: WeightsUpdate) -> None:
            if update.policy_version == "cancelled":
                raise asyncio.CancelledError
            await super().load_weights(update)

    await replicas.start("a", Broken(run))
    pushed = await push(bus, run, "cancelled", weights=safetensors(b"one"), deadline_s=5.0)
    assert pushed.missing == {"a": f"{run} cannot load the weights 'cancelled': CancelledError: "}
    assert (await push(bus, run, "v2", weights=safetensors(b"two"), deadline_s=5.0)).confirmed == ["a"]


async def test_first_weights_that_no_replica_can_load_leave_nothing_behind(
    bus: Bus, replicas: Replicas, run: str
) -> None:
    await replicas.start("a")
    assert (await push(bus, run, "bad", weights=safetensors(b"two"))).taken_back
    assert (await pushing.newest(bus, run), await num_parts(bus, run)) == (None, 0)
    await replicas.start("later")
    assert await answer_of(bus, run, "later") == ("as started", [])


async def test_a_replica_that_cannot_load_what_others_can_continues_with_the_old_and_does_not_start_again(
    bus: Bus, replicas: Replicas, run: str
) -> None:
    await replicas.start("a")
    await replicas.start("picky", Echo(run, is_picky=True))
    pushed = await push(bus, run, "v1", weights=safetensors(b"one"))
    assert (pushed.confirmed, list(pushed.missing), pushed.taken_back) == (["a"], ["picky"], False)
    assert await answer_of(bus, run, "picky") == ("as started", [])
    with pytest.raises(UsageError, match="cannot load the weights 'v1'"):
        await replicas.start("again", Echo(run, is_picky=True))


async def test_a_push_that_is_broken_off_leaves_nothing_behind(
    bus: Bus, replicas: Replicas, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replicas.start("a")

    async def refuse(*_args: Any, **_options: Any) -> Any:
        raise JetStreamError(Code.STREAM_FULL, "the disk is full")

    monkeypatch.setattr("gymq.bus.weights.pushing._store_record", refuse)
    with pytest.raises(BusError, match="disk is full"):
        await push(bus, run, "v1", weights=safetensors(b"one"))
    assert await num_parts(bus, run) == 0


async def test_weights_whose_push_is_cancelled_once_they_are_announced_are_loaded(
    bus: Bus, replicas: Replicas, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    await replicas.start("one")
    store = bus.js.publish_or_last

    async def store_and_wait(*arguments: Any, **options: Any) -> Any:
        await store(*arguments, **options)
        raise asyncio.CancelledError

    monkeypatch.setattr(bus.js, "publish_or_last", store_and_wait)
    with pytest.raises(asyncio.CancelledError):
        await push(bus, run, "v1", weights=safetensors(b"weights of v1"))
    await replicas.start("two")
    for worker in ("one", "two"):
        await until_answer(lambda: answer_of(bus, run, worker), lambda found: found == ("weights of v1", ["v1"]))  # noqa: B023


async def test_a_push_while_no_replica_runs_is_stored_and_reported_as_incomplete(
    bus: Bus, replicas: Replicas, run: str
) -> None:
    await replicas.start("a")
    assert (await push(bus, run, "v1", weights=safetensors(b"one"))).confirmed == ["a"]
    await replicas.kill("a")
    pushed = await push(bus, run, "v2", weights=safetensors(b"two"))
    assert (pushed.confirmed, pushed.missing, pushed.taken_back) == ([], {}, False)
    await replicas.start("later")
    assert await answer_of(bus, run, "later") == ("two", ["v2"])


async def test_damaged_bytes_are_not_loaded(bus: Bus, replicas: Replicas, run: str) -> None:
    model = await replicas.start("a")
    body = safetensors(b"one")
    js = bus.js
    await js.store(f"{subjects.WEIGHTS_PART.begun(run, 'p')}.0", b"x" * len(body))
    record = Weights(
        policy_version="v1", push="p", parts=1, num_bytes=len(body), sha256=hashlib.sha256(body).hexdigest()
    )
    await js.store(subjects.WEIGHTS.of(run), encode(record))
    await until(lambda: replicas.runners["a"].stats()["weights"]["problem"])
    assert "are not those that were stored" in replicas.runners["a"].stats()["weights"]["problem"]
    assert not model.updates


async def test_weights_pushed_while_an_older_push_is_fetched_are_loaded(bus: Bus, replicas: Replicas, run: str) -> None:
    model = await replicas.start("a")
    model.go.clear()
    first = asyncio.create_task(push(bus, run, "v1", weights=safetensors(b"one")))
    await until(lambda: model.updates)
    second = asyncio.create_task(push(bus, run, "v2", weights=safetensors(b"two")))
    await until_answer(lambda: pushing.newest(bus, run), lambda newest: newest and newest.policy_version == "v2")
    model.go.set()
    assert (await second).is_complete
    assert (await first).is_complete  # what it loaded is newer still
    assert await answer_of(bus, run, "a") == ("two", ["v2"])


async def test_of_two_pushes_at_the_same_time_one_is_refused(
    bus: Bus, other_bus: Bus, replicas: Replicas, run: str
) -> None:
    await replicas.start("a")
    ended = await asyncio.gather(
        push(bus, run, "v1", weights=safetensors(b"one")),
        push(other_bus, run, "v2", weights=safetensors(b"two")),
        return_exceptions=True,
    )
    (winner,) = [one for one in ended if isinstance(one, Pushed)]
    (loser,) = [one for one in ended if isinstance(one, UsageError)]
    assert "was stored first" in str(loser)
    assert (await answer_of(bus, run, "a"))[1] == [winner.policy_version]


async def test_the_versions_before_are_remembered_in_order(bus: Bus, replicas: Replicas, run: str) -> None:
    await replicas.start("a")
    for version in ("v1", "v2", "v2", "v3"):
        await push(bus, run, version, weights=safetensors(version.encode()))
    newest = await pushing.newest(bus, run)
    assert newest is not None
    assert (newest.before, newest.policy_version) == (["v1", "v2"], "v3")


async def test_an_answer_during_which_the_weights_changed_names_both_versions(
    bus: Bus, replicas: Replicas, run: str
) -> None:
    class Slow(Echo):
        asked = asyncio.Event()
        may_answer = asyncio.Event()

        async def respond(self, request: ModelRequest) -> dict[str, Any]:
            self.asked.set()
            await self.may_answer.wait()
            return reply("late")

    model = Slow(run)
    await replicas.start("a", model)
    await push(bus, run, "v1", weights=safetensors(b"one"))
    answering = asyncio.create_task(ask(bus, run, "a"))
    await model.asked.wait()
    await push(bus, run, "v2", weights=safetensors(b"two"))
    model.may_answer.set()
    assert (await answering).policy_versions == ["v1", "v2"]


async def test_a_path_that_is_no_text_is_refused(bus: Bus, replicas: Replicas, run: str) -> None:
    await replicas.start("a")
    with pytest.raises(UsageError, match="cannot be announced"):
        await push(bus, run, "v1", path="/tmp/\udcff")


async def test_a_model_that_loads_no_weights_is_not_pushed_to(bus: Bus, replicas: Replicas, run: str) -> None:
    await replicas.start("a", Fixed(name=run))
    with pytest.raises(UsageError, match="loads no weights"):
        await push(bus, run, "v1", weights=safetensors(b"one"))
    assert await pushing.newest(bus, run) is None


async def test_a_model_that_is_not_there_is_not_pushed_to(bus: Bus, monkeypatch: pytest.MonkeyPatch, run: str) -> None:
    async def no_answer(*_args: Any, **_options: Any) -> bool:
        return False

    monkeypatch.setattr("gymq.bus.weights.pushing.is_running", no_answer)
    with pytest.raises(UsageError, match=f"no model named '{run}' is running"):
        await push(bus, run, "v1", weights=safetensors(b"one"))


NO_SAFETENSORS = [b"", b"1234567", b"\xff" * 100, b"\x02" + bytes(7) + b"[]", safetensors(b"one")[:-1]]
NO_SAFETENSORS += [
    safetensors(b"one") + b"x",
    (3).to_bytes(8, "little") + b"{x}",
    (2).to_bytes(8, "little") + b"\xff\xff",
]


@pytest.mark.parametrize("body", NO_SAFETENSORS)
async def test_what_is_no_safetensors_file_is_refused_before_it_is_stored(
    bus: Bus, replicas: Replicas, run: str, tmp_path: Path, body: bytes
) -> None:
    await replicas.start("a")
    file = tmp_path / "w.safetensors"
    file.write_bytes(body)
    for given in (body, file):
        with pytest.raises(UsageError, match="not a safetensors file"):
            await push(bus, run, "v1", weights=given)
    assert await pushing.newest(bus, run) is None


@pytest.mark.parametrize(
    ("model", "version", "given", "text"),
    [
        ("m", "v1", {}, "either a path or weights"),
        ("m", "v1", {"path": "x", "weights": b"x"}, "either a path or weights"),
        ("m.n", "v1", {"path": "x"}, "must be 1 to 64 characters"),
        ("m", "", {"path": "x"}, "1 to 200 printable characters"),
        ("m", "v" * 201, {"path": "x"}, "1 to 200 printable characters"),
        ("m", "v\n1", {"path": "x"}, "1 to 200 printable characters"),
        ("m", "\udcff", {"path": "x"}, "1 to 200 printable characters"),
    ],
)
async def test_a_push_that_makes_no_sense_is_refused(
    bus: Bus, model: str, version: str, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        await push(bus, model, version, **given)
