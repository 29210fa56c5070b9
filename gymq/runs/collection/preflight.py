"""Checks before a cluster starts or a model is paid: the types of rows, and the endpoints of models."""

from __future__ import annotations

import asyncio
import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gymq.agent import Agent
from gymq.authoring import OptionsError, Worker
from gymq.config import Config
from gymq.data.jsonl import parse_object
from gymq.errors import UsageError
from gymq.execution.loading.building import WorkerFailed, build
from gymq.execution.loading.registry import WorkerNotFound
from gymq.failures import InvalidTask, RolloutError
from gymq.model import Model
from gymq.protocol.instances import Instance
from gymq.protocol.subjects import BadToken
from gymq.resources import Resources


class RowTypes:
    """Checks rows against the type that the verifier of their agent declares."""

    def __init__(self, instances: Sequence[Instance] = (), made: Mapping[str, Worker] | None = None) -> None:
        """Find the verifiers among the workers of a configuration.

        Args:
            made: workers that are there already, by the names of their instances.
        """
        made = made or {}
        self._resources: dict[str, Resources[Any]] = {}
        built: dict[str, Resources[Any] | None] = {}
        by_name = {instance.name: instance for instance in instances}
        for instance in instances:
            reference, is_skipped = (instance.options.get(name) for name in ("resources_server", "skip_verification"))
            if instance.kind != "agents" or not isinstance(reference, dict) or is_skipped:
                continue
            agent = _built(instance)
            name = str(reference.get("name"))
            # An agent with a `run` of its own may give its verifier another row.
            if not isinstance(agent, Agent) or type(agent).run is not Agent.run or name not in by_name:
                continue
            if name not in built:
                worker = made.get(name) or _built(by_name[name])
                built[name] = worker if isinstance(worker, Resources) else None
            resources = built[name]
            if resources is not None:
                self._resources[instance.name] = resources

    def check(self, agent: str, row: bytes) -> None:
        """Check one row; those of an agent whose verifier is not known here pass.

        Raises:
            InvalidTask: the row does not fit.
        """
        resources = self._resources.get(agent)
        if resources is None:
            return
        try:
            resources.parse_row(row)
            if resources.seed_row_type is not resources.row_type:
                resources.parse_row(row, resources.seed_row_type)
        except InvalidTask as error:
            raise InvalidTask(f"{error.message}{_similar_field(resources, row)}") from None

    def full_reward(self, agent: str) -> float:
        """Return the upper end of the `reward_range` of an agent's verifier; 1 where it is not known or declared."""
        resources = self._resources.get(agent)
        full = math.inf if resources is None else resources.reward_range[1]
        return full if math.isfinite(full) else 1.0


def _built(spec: Instance) -> Any:
    """Make a worker; None if its class cannot be loaded here, as that of one with an environment of its own."""
    try:
        return build(spec)
    except (BadToken, OptionsError, WorkerFailed, WorkerNotFound):
        return None


def _similar_field(resources: Resources[Any], row: bytes) -> str:
    """Return which field of a row may stand for one that it lacks; empty if none does."""
    names = parse_object(row).keys()
    declared = resources.row_type.model_fields
    for name, field in declared.items():
        if not field.is_required() or name in names:
            continue
        similar = difflib.get_close_matches(name, [other for other in names if other not in declared], n=1)
        if similar:
            return f"; the row has {similar[0]!r}, did you mean {name!r}?"
    return ""


async def probe_models(specs: Sequence[Instance], report: Callable[[str], None]) -> None:
    """Ask each endpoint that workers of a configuration use once.

    Args:
        report: called with sentences about endpoints that may only be slow or busy.

    Raises:
        UsageError: an endpoint answers no request of this configuration.
    """
    used = {name for spec in specs for name in _models_in(spec.options)}
    distinct: dict[tuple[str, bytes], Instance] = {}
    for spec in specs:
        if spec.kind == "models" and spec.name in used:
            distinct.setdefault((spec.implementation, msgspec.json.encode(spec.options, order="sorted")), spec)
    warnings = await asyncio.gather(*map(_probe, distinct.values()))
    for warning in filter(None, warnings):
        report(f"warning: {warning}")


async def _probe(spec: Instance) -> str:
    model = build(spec)
    assert isinstance(model, Model)
    probe_s = 10.0  # for the answer to the first request of a model
    try:
        async with asyncio.timeout(probe_s + 1.0):
            await model.probe(probe_s)
    except InvalidTask:
        return ""  # the smallest request is none for this model
    except RolloutError as error:
        if error.curable:
            raise UsageError(f"{spec.name}: {error.message}; nothing was submitted") from None
        return f"{spec.name}: the first request was not answered: {error.message}; the run starts anyway"
    except TimeoutError:
        return f"{spec.name}: the first request was not answered within {probe_s:g} s; the run starts anyway"
    return ""


def policies(config: Config) -> list[str]:
    """Return the models that agents ask, as tables name them; judges are not among them."""
    values = [value for found in config.instances if found.kind == "agents" for value in found.options.values()]
    references = [value for value in values if isinstance(value, dict)]
    asked = {value.get("name") for value in references if value.get("type") == "responses_api_models"}
    models = [found for found in config.instances if found.kind == "models" and (not asked or found.name in asked)]
    shown = []
    for found in sorted(models, key=lambda one: one.name):
        model = found.options.get("openai_model") or found.options.get("model")
        shown.append(f"{found.name} = {found.implementation}" + (f" ({model})" if model else ""))
    return shown


def _models_in(options: Any) -> Iterator[str]:
    """Yield the names of the models to which options refer, at any depth."""
    if isinstance(options, dict):
        if options.get("type") == "responses_api_models" and isinstance(options.get("name"), str):
            yield options["name"]
        for value in options.values():
            yield from _models_in(value)
    elif isinstance(options, list):
        for value in options:
            yield from _models_in(value)
