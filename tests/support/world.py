"""Workers on a bus and a bridge in front of them, all in the process of the test."""

import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from gymq.workers.agents.simple_agent.worker import SimpleAgent
from gymq.workers.models.vllm_model.worker import VLLMModel

from gymq.agent import Agent
from gymq.bus import Bus, streams
from gymq.bus.discovery import ServiceListing
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.execution.agent_runner import AgentRunner
from gymq.execution.model_runner import BusModels, ModelRunner
from gymq.execution.resources_runner import ResourcesRunner
from gymq.model import Model
from gymq.processes import KillableProcesses
from gymq.resources import Resources
from tests.support.ports import free_port
from tests.support.queues import queues_of_runs

from .engine import Engine
from .environments import Grader

Row = dict[str, Any]
HOST = "127.0.0.1"


class World:
    """A model, resources and agents, each under a name that no other test uses."""

    def __init__(self, url: str, bus: Bus, stack: AsyncExitStack) -> None:
        self.url = url
        self.bus = bus
        self.js = bus.js
        self.outcomes = OutcomeStore(bus)
        self.tag = secrets.token_hex(5)
        self.engine = Engine()
        self.places: list[Any] = []  # of the instances, as keyword arguments of InstanceAddress
        self.bridge: Any = None
        self.resources: list[ResourcesRunner] = []
        self.agents: list[AgentRunner] = []
        self.models: list[Server] = []
        self.head = ""
        self._stack = stack
        self._processes = KillableProcesses(1)

    async def start(self) -> None:
        await self._stack.enter_async_context(self.engine)
        self._stack.callback(self._processes.close)

    def name(self, name: str) -> str:
        """The name in the cluster of what a test calls `name`."""
        return f"{name}_{self.tag}"

    async def add_model(self, name: str = "policy", model: Model | None = None, **options: Any) -> None:
        """A model; by default vllm_model in front of the scripted engine."""
        defaults = {
            "base_url": self.engine.url,
            "api_key": "sk-a-key-for-tests",
            "model": "served",
            "return_token_id_information": True,
            "uses_reasoning_parser": True,
        }
        model = model or VLLMModel(defaults | options, name=self.name(name))
        model.name = self.name(name)
        await model.start()
        self._stack.push_async_callback(model.stop)
        server = await self._server("model")
        runner = ModelRunner(model)
        await runner.serve(server)
        self._stack.push_async_callback(runner.stop)
        self.models.append(server)
        await self._list(name, "models", server, runner.stats)

    async def add_resources(self, name: str, author: Resources[Any], copies: int = 1) -> None:
        author.name = self.name(name)
        await author.start()
        self._stack.push_async_callback(author.stop)
        for _ in range(copies):
            server = await self._server()
            author.models = BusModels(Calls(self.bus))
            runner = ResourcesRunner(author, self._processes)
            await runner.serve(server)
            self._stack.push_async_callback(runner.drain, 0.0)
            self.resources.append(runner)
            await self._list(name, "resources", server)

    async def add_agent(self, name: str, resources: str, *, agent: type[Agent] = SimpleAgent, **options: Any) -> None:
        references = {
            "model_server": {"type": "responses_api_models", "name": self.name("policy")},
            "resources_server": {"type": "resources_servers", "name": self.name(resources)},
        }
        made = agent({**references, **options}, name=self.name(name))
        await made.start()
        self._stack.push_async_callback(made.stop)
        await streams.ensure_agent(self.js, made.name)
        bus = await self._connect()
        runner = AgentRunner(bus, Calls(bus), made, worker=f"agent-{self.tag}-{name}")
        await runner.start()
        self._stack.push_async_callback(runner.drain, 0.0)
        self.agents.append(runner)
        await self._list(name, "agents", None, runner.stats)

    async def start_bridge(self, url: str | None = None, **settings: Any) -> Any:
        """A bridge for all that was added; the test that starts two of one name stops the first itself."""
        bridge = pytest.importorskip("gymq.ext.nemo_gym.bridge")
        directory = pytest.importorskip("gymq.ext.nemo_gym.directory")
        port = settings.pop("port", None) or free_port(HOST)
        made = bridge.BridgeSettings(**{"port": port, "name": f"b{self.tag}", "drain_s": 0.0, **settings})
        bus = await Bus.connect(url or self.url, role="bridge", name="bridge")
        self._stack.push_async_callback(bus.close)
        places = [directory.InstanceAddress(**place) for place in self.places]
        self.bridge = bridge.Bridge(bus, bridge.Directory(places, HOST, port), made)
        self.head = f"http://{HOST}:{port}"
        await self._stack.enter_async_context(self.bridge)
        return self.bridge

    def at(self, name: str) -> str:
        """The URL that an instance is advertised at."""
        return next(f"http://{HOST}:{place['port']}" for place in self.places if place["name"] == self.name(name))

    def row(self, text: str = "say done", /, *, agent: str = "asker", params: Row | None = None, **members: Any) -> Row:
        """A row for an agent."""
        asked = {"input": [{"role": "user", "content": text}], **(params or {})}
        return {"responses_create_params": asked, "agent_ref": {"name": self.name(agent)}, **members}

    async def sessions(self) -> int:
        """Sessions that are open in the resources."""
        return sum(len(runner.local.sessions) for runner in self.resources)

    async def queued(self) -> int:
        """Tasks of all agents of this test in the queue or in work."""
        counts = await self.js.count_by_subject(streams.TASKS, "gym.tasks.*.*")
        return sum(count for subject, count in counts.items() if subject.endswith(self.tag))

    async def _list(
        self, name: str, kind: Any, server: Server | None, stats: Callable[[], dict[str, Any]] = dict
    ) -> None:
        full = self.name(name)
        worker = server.worker if server else f"agent-{self.tag}-{name}"
        bus = server.bus if server else self.bus
        listing = ServiceListing(
            bus, name=full, worker=worker, kind=kind, implementation=name, subjects=["-"], stats=stats
        )
        await listing.start()
        if full not in [place["name"] for place in self.places]:
            place = {"name": full, "kind": kind, "implementation": name, "host": HOST, "port": free_port(HOST)}
            self.places.append({**place, "references": {}})

    async def _server(self, role: str = "test") -> Server:
        bus = await self._connect(role)
        server = Server(bus, f"worker-{self.tag}-{secrets.token_hex(3)}")
        await server.start()
        return server

    async def _connect(self, role: str = "test") -> Bus:
        bus = await Bus.connect(self.url, role=role, name="worker")
        self._stack.push_async_callback(bus.close)
        return bus


@asynccontextmanager
async def guarded_world(url: str) -> AsyncIterator[World]:
    """A model on a server with roles; it and what is added to it are the operator's, whose URL this is."""
    async with AsyncExitStack() as stack:
        operator = await Bus.connect(url, role="operator", name="test")
        stack.push_async_callback(operator.close)
        await stack.enter_async_context(queues_of_runs(operator))
        world = World(url, operator, stack)
        await world.start()
        await world.add_model()
        yield world


class Client:
    """An HTTP client like that of a trainer: no timeout, no limit of connections."""

    def __init__(self, world: World, session: aiohttp.ClientSession) -> None:
        self.world = world
        self.session = session

    async def post(self, path: str, body: Any, **kwargs: Any) -> tuple[int, Any]:
        """Post JSON (bytes are sent as they are) to a path at the head or to a URL; status and decoded answer."""
        url = path if path.startswith("http") else self.world.head + path
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **kwargs.pop("headers", {})}
        async with self.session.post(url, data=data, headers=headers, **kwargs) as answer:
            content = await answer.read()
            return answer.status, json.loads(content) if content else None

    async def run(self, row: Row, **headers: str) -> tuple[int, Any]:
        return await self.post("/run", row, headers=headers)

    async def result(self, row: Row, **headers: str) -> Any:
        """The result of a row that does not fail."""
        status, body = await self.run(row, **headers)
        assert status == 200, body
        return body


@asynccontextmanager
async def new_client(world: World) -> AsyncIterator[Client]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        yield Client(world, session)


@asynccontextmanager
async def grading_world(url: str, bus: Bus, **others: Resources[Any]) -> AsyncIterator[World]:
    """A world with the model, the agent `asker` that the verifier `grader` scores, and other environments by name."""
    async with AsyncExitStack() as stack:
        world = World(url, bus, stack)
        await world.start()
        await world.add_model()
        await world.add_resources("grader", Grader())
        for name, environment in others.items():
            await world.add_resources(name, environment)
        await world.add_agent("asker", "grader")
        yield world
