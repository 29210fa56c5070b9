"""The sandbox as a worker's configuration names it."""

from __future__ import annotations

from typing import Any, Literal

import pydantic

from gymq.sandbox.interface import MIB, Limits, Sandbox
from gymq.sandbox.local import LocalSandbox


class SandboxOptions(pydantic.BaseModel):
    """Where a worker's programs run and what they may use.

    Members of the wrong provider are refused, so that nobody believes in an isolation that is not there.
    """

    model_config = pydantic.ConfigDict(extra="forbid")

    provider: Literal["local", "docker", "ray"] = "local"
    isolation: Literal["namespaces", "bubblewrap", "process"] | None = None  # local and ray; default: the strongest
    python: str | None = None  # the interpreter for programs; default: the worker's own, in containers `python3`
    max_running: pydantic.PositiveInt | None = None  # programs at a time in one worker process; default: one per core
    image: str | None = None  # docker: for programs that name none
    ray_address: str = "auto"
    memory_mib: pydantic.PositiveInt = 1024
    processes: pydantic.PositiveInt = 64
    disk_mib: pydantic.PositiveInt = 256

    @pydantic.model_validator(mode="after")
    def _check_provider(self) -> SandboxOptions:
        if self.provider == "docker" and self.isolation is not None:
            raise ValueError("`isolation` is for the providers `local` and `ray`")
        if self.provider == "docker" and self.image is None:
            raise ValueError("the provider `docker` needs an `image`")
        if self.provider != "docker" and self.image is not None:
            raise ValueError("`image` is for the provider `docker`")
        return self

    def limits(self, **others: Any) -> Limits:
        """The limits that are options; `others` are the worker's own."""
        return Limits(
            **{"memory_bytes": self.memory_mib * MIB, "processes": self.processes, "disk_bytes": self.disk_mib * MIB}
            | others
        )

    def sandbox(self) -> Sandbox:
        """The provider; not started yet."""
        python = {} if self.python is None else {"python": self.python}
        return LocalSandbox(self.max_running, self.isolation, **python)
