"""Options of environments that name a model, such as their judge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple, get_args

from gymq.authoring import Reference, Worker
from gymq.config import Config, Instance
from gymq.execution.loading import registry

MODELS = "responses_api_models"


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
        return f"++{self.instance.name}.{self.name}={json.dumps({'type': MODELS, 'name': model})}"


def model_options(config: Config) -> Iterator[ModelOption]:
    """Yield the options of all environments whose annotation is a reference, found in the workers' own classes.

    An environment whose class is not installed here has none.
    """
    for instance in config.instances:
        if instance.kind != "resources":
            continue
        try:
            worker = registry.find_class(instance.kind, instance.implementation)
        except registry.WorkerNotFound:
            continue
        for name, is_required in model_fields(worker):
            yield ModelOption(instance, name, is_required)


def model_fields(worker: type[Worker]) -> Iterator[tuple[str, bool]]:
    """Yield the options of a worker that name a model, and whether they are required."""
    for name, field in worker.Options.model_fields.items():
        if field.annotation is Reference or Reference in get_args(field.annotation):
            yield name, field.is_required()
