"""An environment of OpenEnv in this process: an object of an installed package's class for each episode."""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import Any

import pydantic

import gymq
from gymq.authoring import first_problem

log = logging.getLogger("gymq.openenv")

_OF_THE_STEP = {"reward", "done", "metadata"}  # what OpenEnv's server does not count as the observation either


def imported(option: str, path: str) -> Any:
    """Return the class that an option names with its module.

    Raises:
        OptionsError: it cannot be imported here.
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # of whatever package it is
        cure = "add its package to the worker's Python (`isolated: [PACKAGE]`), or name a server of it as `base_url`"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise gymq.OptionsError(f"{option}: {path} cannot be imported: {reason}; {cure}") from error
    if not isinstance(found, type):
        raise gymq.OptionsError(f"{option}: {path} is not a class")
    return found


class ImportedEpisode:
    """An episode in this process; the environment's methods run in threads."""

    def __init__(self, environment: Any, action: type[pydantic.BaseModel]) -> None:
        self._environment = environment
        self._action = action

    @classmethod
    async def begun(cls, environment: type, action: type[pydantic.BaseModel]) -> ImportedEpisode:
        """Make the environment.

        Raises:
            ComponentFailed: it cannot be made.
        """
        try:
            return cls(await asyncio.to_thread(environment), action)
        except Exception as error:
            raise _failed("begin", error) from error

    async def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """See `ServedEpisode.ask`."""
        if kind == "step":
            try:
                action = self._action.model_validate(data)
            except pydantic.ValidationError as error:
                raise gymq.ToolError(422, first_problem(error)) from None
        try:
            if kind == "step":
                observed = await asyncio.to_thread(self._environment.step, action)
            else:
                observed = await asyncio.to_thread(self._environment.reset, **data)
            observation = observed.model_dump(mode="json", exclude=_OF_THE_STEP)
            return {"observation": observation, "reward": observed.reward, "done": observed.done}
        except Exception as error:
            raise _failed(kind, error) from error

    async def close(self) -> None:
        """End the episode. An environment that fails to end costs no verdict."""
        if (close := getattr(self._environment, "close", None)) is None:
            return
        try:
            await asyncio.to_thread(close)
        except Exception:
            log.warning("%s failed to close", type(self._environment).__name__, exc_info=True)


def _failed(kind: str, error: Exception) -> gymq.ComponentFailed:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return gymq.ComponentFailed(f"the environment failed to {kind}: {reason}")
