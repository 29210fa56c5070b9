"""The environment actor of NeMo RL, with rollouts over NATS. Nothing imports Ray before `remote_class` is called.

NeMo RL calls these methods by name; see https://github.com/NVIDIA-NeMo/RL, `nemo_rl/environments/nemo_gym.py`.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import logging
import secrets
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, get_args

from gymq.bus import Bus
from gymq.bus.discovery import find_workers, is_running
from gymq.cluster.launch import Cluster
from gymq.config import Config, load
from gymq.config.process_settings import HAVE_TOKENS, process_variables
from gymq.data.rows import AGENT_REF, ROW_NUMBER, TASK_INDEX
from gymq.errors import UsageError
from gymq.ext.trainers.nemo_rl.logs import MessageLogs
from gymq.ext.trainers.nemo_rl.media import embed_media
from gymq.protocol.instances import SERVER_TYPE_OF
from gymq.trainer.examples import Row, called
from gymq.trainer.run import TrainingRun

log = logging.getLogger("gymq.trainer")

OURS = "gymq"  # key of a configuration that is not of a worker
RESOURCES_REF = "resources_server"  # option of agents
TASK_SOURCE = "task_source"  # of rows that NeMo Gym of September 2026 has prepared, in place of an agent
MEDIA_OMITTED = "_initial_multimodal_data_omitted"

# What is yielded for a row. NeMo RL reads the agent that ran it since September 2026.
WITH_AGENT = ("row number", "agent", "result", "timings")
Streamed = tuple[int, Row, dict[str, float] | None] | tuple[int, Row, Row, dict[str, float] | None]


class NemoGym:
    """Environments of a cluster: one that is started from the configuration, or one that runs already."""

    names_agent: ClassVar[bool] = True  # whether the agent is among the values that are yielded for a row

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        """Check the configuration.

        Args:
            cfg: NeMo RL's: `model_name`, `base_urls` of its engines, and `initial_global_config_dict`, a configuration
                of workers. The mapping `gymq` in the latter may have `nats`, the URL of a cluster that already runs,
                and `run`, the name that rollouts are stored under. Of such a cluster the instances of the
                configuration are used, or all if it has no `config_paths`.

        Raises:
            UsageError: it asks for what this actor does not do.
        """
        if (cfg.get("token_capture") or {}).get("enabled"):
            raise UsageError(f"token_capture is not supported: {HAVE_TOKENS}")
        self._cfg = cfg
        self._logs = MessageLogs(cfg, may_lack_experts=self.names_agent)
        self._stack = AsyncExitStack()
        self._run: TrainingRun | None = None
        self._bus: Bus | None = None
        self._expected: dict[str, tuple[Any, str]] = {}  # kind and implementation of each instance, by name
        self._agents_of: defaultdict[str, list[str]] = defaultdict(list)  # by the resources that they refer to
        self._indices = itertools.count(secrets.randbits(52))

    async def _spinup(self) -> None:
        """Start or join the cluster; returns when it serves.

        Raises:
            ConfigError, UsageError, BusError, UsageError: it says why it cannot.
        """
        tree = dict(self._cfg.get("initial_global_config_dict") or {})
        ours = dict(tree.pop(OURS, None) or {})
        url: Any = ours.get("nats")
        config = None
        if not url or tree.get("config_paths"):
            config = self._configured(tree)
            url = url or await self._start_cluster(config)
        self._bus = await Bus.connect(url, role="trainer", name="NeMo RL")
        self._stack.push_async_callback(self._bus.close)
        training = TrainingRun(self._bus, ours.get("run") or f"nemo-rl-{secrets.token_hex(4)}")
        self._run = await self._stack.enter_async_context(training)
        if num_left_over := await training.cancel_left_over():
            log.warning("cancelled %d rollouts that an earlier actor of run %s left", num_left_over, training.run)
        for worker in await find_workers(self._bus, wait_s=2.0):
            metadata = worker["metadata"]
            if metadata.get("kind") in SERVER_TYPE_OF and (config is None or worker["name"] in self._expected):
                self._expected[worker["name"]] = (metadata["kind"], metadata["implementation"])
        if config is not None:
            await self.health_check()

    def _configured(self, tree: dict[str, Any]) -> Config:
        """Load the configuration, and expect its instances."""
        engines = {"policy_model_name": self._cfg["model_name"], "policy_base_url": self._cfg["base_urls"]}
        paths = [str(path) for path in tree.pop("config_paths", ())]
        config = load(paths, [], initial={**tree, **engines, "policy_api_key": "dummy_key"})
        self._expected = {instance.name: (instance.kind, instance.implementation) for instance in config.instances}
        for instance in config.instances:
            refers_to = instance.options.get(RESOURCES_REF)
            if instance.kind == "agents" and isinstance(refers_to, dict):
                self._agents_of[refers_to.get("name", "")].append(instance.name)
        return config

    async def _start_cluster(self, config: Config) -> str:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gymq-", ignore_cleanup_errors=True))
        cluster = Cluster(config.instances, folder=Path(folder), variables=process_variables(config.tree))
        return (await self._stack.enter_async_context(cluster)).url

    def set_tokenizer(self, tokenizer: Any) -> None:
        """Take the tokenizer that makes texts of token ids for logs."""
        self._logs.tokenizer = tokenizer

    async def health_check(self) -> None:
        """Check that everything still serves.

        Raises:
            UsageError: something does not; the message names it.
        """
        self._spun_up()
        if self._bus is None or self._bus.lost.is_set():
            raise UsageError("the connection to NATS is lost")
        for name, (kind, _) in self._expected.items():
            if not await is_running(self._bus, name, kind):
                raise UsageError(f"no worker serves {SERVER_TYPE_OF[kind]} {name}")

    async def run_rollouts(
        self,
        nemo_gym_examples: list[Row],
        timer_prefix: str,
        deduplicate_multimodal_data: bool = False,
        per_prompt: bool = False,
    ) -> AsyncIterator[Streamed]:
        """Roll out rows, each once, whatever other rows are like.

        Images in the results are complete, also with `deduplicate_multimodal_data`, which allows to leave some out.

        Yields:
            `_rowidx`, `agent_ref` (if `names_agent`), the result, and timings with the last result only, as each is
            completed.

        Raises:
            GymTransportError, RolloutDataFailure: NeMo RL's, of a row that failed, after all others were yielded. Where
                NeMo RL is not installed it is RowFailed, whose `status` says whether to retry the row.
            UsageError, RowError: the rows cannot be used.
            BusError: the connection is lost.
        """
        training = self._spun_up()
        if self._logs.tokenizer is None:
            raise UsageError("call set_tokenizer before run_rollouts")
        if not nemo_gym_examples:
            raise UsageError("run_rollouts needs at least one row")
        for number, row in enumerate(nemo_gym_examples, 1):
            if ROW_NUMBER not in row:
                raise UsageError(f"{called(f'row {number}', row)} has no `{ROW_NUMBER}`")
        embed_media(nemo_gym_examples)
        # A row that is sent again is a new one: of equal rows it is unknown which one is meant.
        rows = [{**row, **self._agent_of(row), TASK_INDEX: next(self._indices)} for row in nemo_gym_examples]
        async for row, result, timings in self._logs.stream(training.run_rollouts(rows), len(rows), timer_prefix):
            if deduplicate_multimodal_data:
                result[MEDIA_OMITTED] = False
            number = row[ROW_NUMBER]
            yield (number, row[AGENT_REF], result, timings) if self.names_agent else (number, result, timings)

    def _agent_of(self, row: Row) -> Row:
        """Return the field for the agent of a row that names none, by its task source: an agent, or resources of one.

        Raises:
            UsageError: there is no such agent, or more than one.
        """
        source = row.get(TASK_SOURCE)
        if row.get(AGENT_REF) or source is None:
            return {}
        is_agent = self._expected.get(source, ("",))[0] == "agents"
        agents = [source] if is_agent else self._agents_of.get(source, [])
        if len(agents) != 1:
            found = f"belongs to {', '.join(agents)}" if agents else "names no agent, nor resources of one, known here"
            name = called(f"row {row[ROW_NUMBER]}", row)
            raise UsageError(f"{name}: `{TASK_SOURCE}` {source!r} {found}; name one in `{AGENT_REF}`")
        return {AGENT_REF: {"type": SERVER_TYPE_OF["agents"], "name": agents[0]}}

    async def list_entries(self) -> dict[str, list[str]]:
        """Return the kind of each instance, by name."""
        self._spun_up()
        return {name: [SERVER_TYPE_OF[kind]] for name, (kind, _) in sorted(self._expected.items())}

    async def agent_implementations(self) -> dict[str, str]:
        """Return the implementation of each agent instance, by name."""
        self._spun_up()
        expected = sorted(self._expected.items())
        return {name: implementation for name, (kind, implementation) in expected if kind == "agents"}

    async def shutdown(self) -> None:
        """Disconnect, and stop what was started. Idempotent."""
        self._run = None
        await self._stack.aclose()

    def step(self, *_: Any, **__: Any) -> None:
        """Refuse the call, which does not apply to environments that run whole rollouts."""
        raise NotImplementedError("use run_rollouts for rollouts")

    global_post_process_and_metrics = step

    def _spun_up(self) -> TrainingRun:
        if self._run is None:
            raise UsageError("this actor is connected to no cluster: call _spinup first, also after Ray restarted it")
        return self._run


def remote_class(replaced: Any = None) -> Any:
    """Return `NemoGym` as a class of actors that Ray does not restart, since only `_spinup` connects them.

    Args:
        replaced: NeMo RL's own actor, whose interface is taken over; None: that of September 2026.

    Raises:
        UsageError: Ray is not installed, or `replaced` has an interface that is not known.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise UsageError("Ray is not installed here: pip install 'gymq[ray]'") from None
    names_agent = NemoGym.names_agent if replaced is None else _num_yielded(replaced) == len(WITH_AGENT)
    made = type("NemoGym", (NemoGym,), {"names_agent": names_agent, "run_rollouts": _traced(NemoGym.run_rollouts)})
    return ray.remote(max_restarts=0, max_task_retries=0)(made)


def _traced(method: Any) -> Any:
    """Return a method that continues the trace of its caller, where NeMo RL has this."""
    try:
        instrumentation: Any = importlib.import_module("nemo_rl.telemetry.instrumentation")
    except ModuleNotFoundError:
        return method
    return instrumentation.accepts_trace_context(method)


def _num_yielded(replaced: Any) -> int:
    """Return how many values NeMo RL's actor yields for a row, which its annotation says."""
    plain = replaced.__ray_metadata__.modified_class
    yielded = get_args(inspect.signature(plain.run_rollouts, eval_str=True).return_annotation)
    values = get_args(yielded[0]) if yielded else ()
    if len(values) not in (len(WITH_AGENT) - 1, len(WITH_AGENT)):
        raise UsageError(f"run_rollouts of this NeMo RL yields {yielded or 'what it does not say'}: not known here")
    return len(values)
