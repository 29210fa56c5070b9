"""Example rows of a worker, each checked with the resources class that verifies it."""

from __future__ import annotations

from typing import Any

import msgspec

from gymq.config import Config, ConfigError
from gymq.data.jsonl import parse_object
from gymq.data.rows import AGENT_REF, PARAMS, RowError, agent_name
from gymq.data.short_rows import whole_row
from gymq.execution.loading.building import build
from gymq.execution.loading.worker_source import WorkerSource
from gymq.protocol.instances import Instance
from gymq.resources import Resources

NAME_PROMPT = "; pass --prompt-field NAME"


class ExampleRow(msgspec.Struct, frozen=True):
    where: str  # file and line
    fields: dict[str, Any]
    agent: str | None


class RowChecker:
    """Reads rows for the worker of a configuration."""

    def __init__(self, source: WorkerSource, config: Config | None, prompt_field: str | None = None) -> None:
        self._source = source
        self._config = config
        self._prompt_field = prompt_field
        self._built: dict[str, Resources[Any]] = {}

    def read(self, line: bytes, where: str) -> ExampleRow:
        """Parse a line as a row.

        Raises:
            JsonlError, RowError: it is not a valid row, or offers an unknown tool.
            ConfigError: the row's agent is not in the configuration.
            InvalidTask: the row does not fit the verifier.
            OptionsError, WorkerNotFound: the verifier cannot be built.
        """
        line = whole_row(line, self._prompt_field, NAME_PROMPT)
        fields = parse_object(line)
        agent = agent_name(fields[AGENT_REF]) if AGENT_REF in fields else None
        row = ExampleRow(where, msgspec.json.decode(line), agent)
        spec = self._spec(row.agent)
        if spec is None:
            Resources().parse_row(line)  # checks the parameters of the request, which every row has
            return row
        author = self._author(spec)
        author.parse_row(line, author.seed_row_type)
        author.parse_row(line)
        # A verifier of calls has no tools; calls of its rows are never run.
        any_tool = not author.tools or type(author).call_tool is not Resources.call_tool
        for tool in row.fields[PARAMS].get("tools") or ():
            offered = tool.get("name") if tool.get("type") == "function" else None
            if offered is not None and offered not in author.tools and not any_tool:
                raise RowError(f"the row offers the tool {offered!r}, but {author.name} has no such tool")
        return row

    def _author(self, spec: Instance) -> Resources[Any]:
        if spec.name not in self._built:
            built = build(spec)
            assert isinstance(built, Resources)
            self._built[spec.name] = built
        return self._built[spec.name]

    def _spec(self, agent: str | None) -> Instance | None:
        """Return the resources instance of an agent; None if it is unknown."""
        if self._config is None:
            return None
        by_name = {found.name: found for found in instances_under_test(self._config, self._source)}
        name = agent or self._config.only_agent
        if name is None:
            return None
        found = self._config.instance(name)
        if found.kind != "agents":
            raise ConfigError(f"{agent} is not an agent but one of the {found.kind}")
        reference = found.options.get("resources_server")
        return by_name.get(str(reference["name"])) if isinstance(reference, dict) else None


def instances_under_test(config: Config, source: WorkerSource) -> list[Instance]:
    """Return the instances of a configuration, with the actual location of the worker under test."""
    return [
        msgspec.structs.replace(found, implementation=source.implementation) if source.is_run_by(found) else found
        for found in config.instances
    ]
