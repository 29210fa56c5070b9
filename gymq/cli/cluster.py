"""Which workers a command is about, and where they run: a cluster given, one found here, or one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from gymq.bus import Bus
from gymq.cli.errors import Refused
from gymq.config import Config, ConfigError, load
from gymq.host import InstanceSpec, build
from gymq.jetstream import STREAM_NOT_FOUND, JetStreamError
from gymq.launch import Cluster
from gymq.server import EmbeddedServer, find_running

FOLDER = Path(".gymq")
STORE = FOLDER / "jetstream"
POLICY = "policy_model"
STAND_IN = "simulated_model"
CONNECT_S = 5.0  # somebody waits at the terminal


def read_config(
    config: Sequence[Path],
    overrides: Sequence[str],
    *,
    resources: Path | None = None,
    model_url: str | None = None,
    model: str | None = None,
    with_agent: bool = True,
) -> Config:
    """The configuration a command was given: files, a single file with a verifier, an endpoint for the policy.

    Args:
        resources: a Python file with a Resources class.
        model_url: base URL of an OpenAI-compatible endpoint that becomes the policy.
        with_agent: whether the Python file is given a simple_agent to go with it.
    """
    initial: dict[str, Any] = {}
    added = list(overrides)
    if resources is not None:
        if not resources.is_file():
            raise Refused(f"there is no file {resources}")
        initial |= _instances_for(resources, with_agent=with_agent)
    if model_url is not None:
        if model is None:
            raise Refused("--model-url needs --model, the name the endpoint knows the model by")
        added = [*_policy_at(model_url, model), *added]
    elif model is not None:
        raise Refused("--model needs --model-url, the endpoint that serves the model")
    try:
        return load([str(path) for path in config], added, initial=initial)
    except ConfigError as error:
        if resources is None or f"are called {POLICY}" not in str(error):
            raise
    print(f"gymq: no policy is given (--model-url, --model), so {STAND_IN} stands in for one", file=sys.stderr)
    stand_in = {POLICY: {"responses_api_models": {STAND_IN: {"entrypoint": "worker.py"}}}}
    return load([str(path) for path in config], added, initial=initial | stand_in)


def instance_specs(config: Config) -> list[InstanceSpec]:
    """The workers of a configuration, each checked to exist and to accept its options.

    Raises:
        Refused: there are none.
        WorkerNotFound, OptionsError
    """
    specs = [InstanceSpec(found.name, found.kind, found.implementation, found.options) for found in config.instances]
    if not specs:
        raise Refused("the configuration describes no workers: give --config FILE or --resources FILE.py")
    for spec in specs:
        build(spec)
    return specs


@asynccontextmanager
async def cluster_url(nats: str | None, config: Config, *, log_level: str) -> AsyncIterator[str]:
    """The URL of a cluster: the one given, the one running in this folder, or one started for the while.

    The one that is started has a bridge if the configuration asks for it.

    Raises:
        Refused, WorkerNotFound, OptionsError: one is to be started, and the configuration does not allow it.
    """
    url = nats or await find_running(STORE)
    if url is not None:
        yield url
        return
    specs = instance_specs(config)
    async with Cluster(specs, folder=FOLDER, log_level=log_level) as cluster, AsyncExitStack() as stack:
        if config.tree.get("bridge") is not None:
            from gymq.cli.bridging import bridge_for  # a web server, which no other command needs

            await stack.enter_async_context(bridge_for(config, cluster.url))
        try:
            yield cluster.url
        except asyncio.CancelledError:
            print("gymq: stopping: rollouts in hand are finished or given back; Ctrl-C hurries", file=sys.stderr)
            raise


async def running_url(nats: str | None) -> str:
    """The URL of a cluster that runs already.

    Raises:
        Refused: none does.
    """
    url = nats or await find_running(STORE)
    if url is None:
        raise Refused("no cluster runs in this folder: start one with `gymq up`, or name one with --nats URL")
    return url


@asynccontextmanager
async def stored_url(nats: str | None) -> AsyncIterator[str]:
    """The URL of a server with the streams: of a cluster, or one started for the while on what is stored here.

    Raises:
        Refused: nothing is stored in this folder.
    """
    url = nats or await find_running(STORE)
    if url is not None:
        yield url
        return
    if not STORE.is_dir():
        raise Refused("nothing was run in this folder: `gymq collect` runs something, --nats URL names a cluster")
    async with EmbeddedServer(STORE) as server:
        yield server.url


@asynccontextmanager
async def connected(url: str, *, name: str, role: str = "client") -> AsyncIterator[Bus]:
    """A connection for a command.

    Raises:
        BusError, Refused: no server, or one without the streams of gymq.
    """
    bus = await Bus.connect(url, role=role, name=name, timeout_s=CONNECT_S)
    try:
        yield bus
    except JetStreamError as error:
        if error.code != STREAM_NOT_FOUND:
            raise
        raise Refused("this NATS server has no streams of gymq yet: `gymq up --nats URL` makes them") from None
    finally:
        await bus.close()


def _instances_for(file: Path, *, with_agent: bool) -> dict[str, Any]:
    name = "".join(letter if letter.isalnum() else "_" for letter in file.stem)
    resources = {name: {"resources_servers": {str(file.resolve()): {"entrypoint": file.name, "domain": "other"}}}}
    if not with_agent:
        return resources
    return resources | {
        f"{name}_simple_agent": {
            "responses_api_agents": {
                "simple_agent": {
                    "entrypoint": "worker.py",
                    "resources_server": {"type": "resources_servers", "name": name},
                    "model_server": {"type": "responses_api_models", "name": POLICY},
                }
            }
        },
    }


def _policy_at(url: str, model: str) -> list[str]:
    """Overrides that put an endpoint in the place of whatever policy the files name."""
    key = os.environ.get("GYMQ_MODEL_API_KEY") or os.environ.get("OPENAI_API_KEY") or "none"
    options = {"entrypoint": "worker.py", "openai_base_url": url, "openai_api_key": key, "openai_model": model}
    policy = {"responses_api_models": {"openai_model": options}}
    values = {"policy_base_url": url, "policy_api_key": key, "policy_model_name": model}
    return [
        *(f"++{name}={json.dumps(value)}" for name, value in values.items()),
        f"++{POLICY}=null",
        f"++{POLICY}={json.dumps(policy)}",
    ]
