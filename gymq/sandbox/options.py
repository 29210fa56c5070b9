"""The sandbox as a worker's configuration names it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Literal

import pydantic

from gymq.authoring import OptionsError
from gymq.extensions import extensions
from gymq.failures import ComponentFailed
from gymq.sandbox.interface import MIB, Limits, Sandbox
from gymq.sandbox.local import LocalSandbox


class SandboxOptions(pydantic.BaseModel):
    """Where a worker's programs run, and their limits.

    Fields of the wrong provider are refused, so that no user believes in an isolation that is not there.
    """

    model_config = pydantic.ConfigDict(extra="forbid")

    provider: str = "local"  # or the name of an entry point `gymq.sandboxes`
    isolation: Literal["namespaces", "bubblewrap", "process"] | None = (
        None  # local, ray; default: one that hides the machine
    )
    python: str | None = None  # the interpreter for programs; default: the worker's own, in containers `python3`
    max_running: pydantic.PositiveInt | None = None  # programs at a time in one worker process; default: one per core
    image: str | None = None  # docker: for programs that name none
    ray_address: str = "auto"  # of the cluster, as `ray.init` takes it
    memory_mib: pydantic.PositiveInt | None = None  # of a program; default: what the worker finds right

    @pydantic.model_validator(mode="after")
    def _check_provider(self) -> SandboxOptions:
        self._provider()(self)
        return self

    def limits(self, limits: Limits) -> Limits:
        """Return a worker's limits, changed as the options say."""
        if self.memory_mib is None:
            return limits
        return dataclasses.replace(limits, memory_bytes=self.memory_mib * MIB)

    async def started(self) -> Sandbox:
        """Start the provider, so that it can run programs.

        Raises:
            OptionsError: the provider cannot start; the message says why.
        """
        sandbox = self._provider()(self)
        try:
            await sandbox.start()
        except ComponentFailed as error:
            raise OptionsError(f"sandbox: {error.message}") from None
        return sandbox

    def _provider(self) -> Provider:
        if self.provider == "local":
            return _local
        found = {entry.name: entry for entry in extensions("sandboxes")}
        if self.provider not in found:
            raise ValueError(f"there is no provider `{self.provider}`: there are {', '.join(['local', *found])}")
        provider: Provider = found[self.provider].load()
        return provider


Provider = Callable[[SandboxOptions], Sandbox]
"""Returns a sandbox that is not started; a ValueError says which option it needs, or does not support."""


def _local(options: SandboxOptions) -> Sandbox:
    if options.image is not None:
        raise ValueError("`image` is for the provider `docker`")
    return LocalSandbox(options.max_running, options.isolation, options.python or sys.executable)
