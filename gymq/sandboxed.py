"""SandboxedEnvironment: an environment whose verifier or tools run programs in a sandbox."""

from __future__ import annotations

from typing import ClassVar, Generic

from gymq.authoring import WorkerOptions
from gymq.resources import Need, Resources, RowT
from gymq.resources.resources import StateT
from gymq.sandbox import Sandbox, SandboxOptions


class SandboxedOptions(WorkerOptions):
    """Options of a worker that runs programs in a sandbox."""

    sandbox: SandboxOptions = SandboxOptions()


class SandboxedEnvironment(Resources[RowT, StateT], Generic[RowT, StateT]):
    """An environment that runs programs in `self.sandbox`, which starts and stops with it.

    Options of its own derive from `SandboxedOptions`; `start` and `stop` of its own call these.
    """

    Options = SandboxedOptions

    deterministic: ClassVar[bool] = False  # a program may be slow one time and fast enough the next
    needs: ClassVar[frozenset[Need]] = frozenset({"sandbox"})

    sandbox: Sandbox

    async def start(self) -> None:
        """Start the sandbox.

        Raises:
            OptionsError: it cannot start; the message says why.
        """
        self.sandbox = await self.options.sandbox.started()

    async def stop(self) -> None:
        """Stop the sandbox, and what still runs in it."""
        await self.sandbox.stop()
