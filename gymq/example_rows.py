"""Example rows of a worker, each checked with the resources class that will get it."""

from __future__ import annotations

from typing import Any

import msgspec

from gymq.config import Config, ConfigError
from gymq.host import InstanceSpec, build
from gymq.jsonl import parse_object
from gymq.resources import Resources
from gymq.rows import AGENT_REF, PARAMS, AgentRef, RowError
from gymq.worker_source import WorkerSource


class ExampleRow(msgspec.Struct, frozen=True):
    where: str  # file and line
    members: dict[str, Any]
    agent: str | None


class RowChecker:
    """Reads rows for the worker of a configuration."""

    def __init__(self, source: WorkerSource, config: Config | None) -> None:
        self._source = source
        self._config = config
        self._built: dict[str, Resources[Any]] = {}

    def read(self, line: bytes, where: str) -> ExampleRow:
        """The row in a line.

        Raises:
            JsonlError, RowError: it is no row, or offers tools that nobody has.
            ConfigError: the configuration does not have the row's agent.
            InvalidTask: the row does not fit the verifier.
            OptionsError, WorkerNotFound
        """
        members = parse_object(line)
        if PARAMS not in members:
            raise RowError(f"the row has no member `{PARAMS}`")
        row = ExampleRow(where, msgspec.json.decode(line), _agent(members.get(AGENT_REF)))
        spec = self._spec(row.agent)
        if spec is None:
            Resources().parse_row(line)  # the parameters of the request, which every row has
            return row
        author = self._author(spec)
        author.parse_row(line, author.seed_row_type)
        author.parse_row(line)
        # A verifier of calls has no tools: the ones that its rows offer are never run.
        any_tool = not author.tools or type(author).call_tool is not Resources.call_tool
        for tool in row.members[PARAMS].get("tools") or ():
            offered = tool.get("name") if tool.get("type") == "function" else None
            if offered is not None and offered not in author.tools and not any_tool:
                raise RowError(f"the row offers the tool {offered!r}, but {author.name} has no such tool")
        return row

    def _author(self, spec: InstanceSpec) -> Resources[Any]:
        if spec.name not in self._built:
            built = build(spec)
            assert isinstance(built, Resources)
            self._built[spec.name] = built
        return self._built[spec.name]

    def _spec(self, agent: str | None) -> InstanceSpec | None:
        """The resources instance of an agent; None if nobody knows it."""
        if self._config is None:
            return None
        specs = {spec.name: spec for spec in specs_of(self._config, self._source)}
        if agent is None:
            found = [instance for instance in self._config.instances if instance.kind == "agents"]
            if len(found) != 1:
                return None
        else:
            found = [self._config.instance(agent)]
            if found[0].kind != "agents":
                raise ConfigError(f"{agent} is no agent but one of the {found[0].kind}")
        reference = found[0].options.get("resources_server")
        return specs.get(str(reference["name"])) if isinstance(reference, dict) else None


def specs_of(config: Config, source: WorkerSource) -> list[InstanceSpec]:
    """The instances of a configuration, with the worker under test found wherever its folder was moved to."""
    return [
        InstanceSpec(
            found.name,
            found.kind,
            source.implementation if source.is_run_by(found) else found.implementation,
            found.options,
        )
        for found in config.instances
    ]


def _agent(reference: msgspec.Raw | None) -> str | None:
    if reference is None:
        return None
    try:
        return msgspec.json.decode(reference, type=AgentRef).name
    except msgspec.MsgspecError:
        raise RowError(f"`{AGENT_REF}` must be an object with the agent's `name`") from None
