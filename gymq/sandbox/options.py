"""The sandbox as a worker's configuration names it."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pydantic

from gymq.authoring import OptionsError
from gymq.sandbox.docker import DockerSandbox
from gymq.sandbox.interface import MIB, Limits, Sandbox, SandboxFailed
from gymq.sandbox.local import LocalSandbox
from gymq.sandbox.ray import RaySandbox


class SandboxOptions(pydantic.BaseModel):
    """Where a worker's programs run, and their limits.

    Fields of the wrong provider are refused, so that no user believes in an isolation that is not there.
    """

    model_config = pydantic.ConfigDict(extra="forbid")

    provider: Literal["local", "docker", "ray"] = "local"
    isolation: Literal["namespaces", "bubblewrap", "process"] | None = (
        None  # local, ray; default: one that hides the machine
    )
    python: str | None = None  # the interpreter for programs; default: the worker's own, in containers `python3`
    max_running: pydantic.PositiveInt | None = None  # programs at a time in one worker process; default: one per core
    image: str | None = None  # docker: for programs that name none
    ray_address: str = "auto"  # of the cluster, as `ray.init` takes it
    memory_mib: pydantic.PositiveInt | None = None  # of a program; default: what the worker finds right
    _weakness: str = ""  # once it is started

    @pydantic.model_validator(mode="after")
    def _check_provider(self) -> SandboxOptions:
        if self.provider == "docker" and self.isolation is not None:
            raise ValueError("`isolation` is for the providers `local` and `ray`")
        if self.provider == "docker" and self.image is None:
            raise ValueError("the provider `docker` needs an `image`")
        if self.provider != "docker" and self.image is not None:
            raise ValueError("`image` is for the provider `docker`")
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
        sandbox = self._sandbox()
        try:
            await sandbox.start()
        except SandboxFailed as error:
            raise OptionsError(f"sandbox: {error.message}") from None
        self._weakness = sandbox.weakness
        return sandbox

    @property
    def weakness(self) -> str:
        """The `Sandbox.weakness` of the sandbox that was started."""
        return self._weakness

    def _sandbox(self) -> Sandbox:
        python = {} if self.python is None else {"python": self.python}
        match self.provider:
            case "docker":
                assert self.image is not None
                return DockerSandbox(self.image, self.max_running, **python)
            case "ray":
                return RaySandbox(self.ray_address, self.isolation, **python)
        return LocalSandbox(self.max_running, self.isolation, **python)
