"""Options of the workers of a configuration: those that it implies for them, and those that name a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

from gymq.agent import Agent
from gymq.authoring import Reference, Worker
from gymq.config import Config, Instance
from gymq.config.process_settings import TOKEN_ID_CAPTURE, is_enabled
from gymq.execution.loading.registry import class_of
from gymq.model import Model

HARDENED = "hardened"
TOKEN_IDS = "return_token_id_information"
VERIFIER = "_verifier"  # end of an instance's name


def implied_overrides(config: Config) -> list[str]:
    """Return overrides for what the configuration implies.

    An agent of NeMo Gym that verifies by itself gets the resources worker that does it here; `token_id_capture` asks
    every model that can return token ids for them.
    """
    return [*_verifiers(config), *_token_ids(config)]


def published_rules(config: Config) -> dict[str, str]:
    """Return by verifier the override that makes it reward as published, for those that have other rules by default.

    Those that the configuration hardens explicitly are left out.
    """
    return {
        instance.name: _option(instance, HARDENED, False)
        for instance in config.instances
        if instance.kind == "resources"
        and not instance.options.get(HARDENED)
        and (worker := class_of(instance)) is not None
        and HARDENED in worker.Options.model_fields
    }


def _verifiers(config: Config) -> Iterator[str]:
    for instance in config.instances:
        if instance.kind != "agents" or instance.options.get("resources_server") is not None:
            continue
        worker = class_of(instance)
        verifier = worker.own_verifier(instance.options) if worker and issubclass(worker, Agent) else None
        if verifier is None:
            continue
        name = f"{instance.name}{VERIFIER}"
        options = {"entrypoint": "worker.py", "domain": "other", **verifier.options}
        yield _set(name, {"resources_servers": {verifier.implementation: options}})
        yield _option(instance, "resources_server", {"type": "resources_servers", "name": name})


def _token_ids(config: Config) -> Iterator[str]:
    if not is_enabled(config.tree.get(TOKEN_ID_CAPTURE)):
        return
    for instance in config.instances:
        if instance.kind != "models" or TOKEN_IDS in instance.options:
            continue
        worker = class_of(instance)
        if worker is not None and issubclass(worker, Model) and TOKEN_IDS in worker.Options.model_fields:
            yield _option(instance, TOKEN_IDS, True)


def _option(instance: Instance, name: str, value: Any) -> str:
    return _set(instance.name, {instance.server_type: {instance.implementation: {name: value}}})


def _set(key: str, value: Any) -> str:
    return f"++{key}={json.dumps(value)}"


class ModelOption(NamedTuple):
    """An option of an environment that names a model."""

    instance: Instance
    name: str
    is_required: bool

    @property
    def model(self) -> str | None:
        """The name of the model, None where the option is not set."""
        value = self.instance.options.get(self.name)
        return value.get("name") if isinstance(value, dict) else None

    def override(self, model: str) -> str:
        """Return the override that sets it."""
        return _set(f"{self.instance.name}.{self.name}", {"type": "responses_api_models", "name": model})


def model_options(config: Config) -> Iterator[ModelOption]:
    """Yield the options of all environments whose annotation is a reference, found in the workers' own classes.

    An environment whose class is not installed here has none.
    """
    for instance in config.instances:
        worker = class_of(instance) if instance.kind == "resources" else None
        if worker is not None:
            for name, is_required in model_fields(worker):
                yield ModelOption(instance, name, is_required)


def model_fields(worker: type[Worker]) -> Iterator[tuple[str, bool]]:
    """Yield the options of a worker that name a model, and whether they are required."""
    for name, field in worker.Options.model_fields.items():
        if field.annotation is Reference or Reference in get_args(field.annotation):
            yield name, field.is_required()
