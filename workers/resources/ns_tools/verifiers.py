"""The verifiers of other resources workers, run in this process."""

from __future__ import annotations

from typing import Any

import pydantic

import gymq
from gymq.authoring import current_call
from gymq.loading import registry
from gymq.protocol.messages import Verified, Verify
from gymq.resources import Resources
from gymq.runtime.sessions import ResourcesWorker

_FLAGS = {gymq.FailureClass.JUDGE_FAILED, gymq.FailureClass.INVALID_TASK}  # handed on as they are


class VerifierOptions(pydantic.BaseModel):
    """Which worker verifies, and its options."""

    model_config = pydantic.ConfigDict(extra="forbid")

    type: str = "resources_servers"
    name: str | None = None  # of the implementation; default: the name by which rows call it
    options: dict[str, Any] = {}


class DelegatedVerifier:
    """Asks the verifier of another worker.

    It runs here and not as an instance of its own: a resources worker may not call others on the bus.

    Raises:
        OptionsError, WorkerNotFound: there is no such worker, or it keeps state, which nobody would seed.
    """

    def __init__(self, name: str, options: VerifierOptions, owner: Resources[Any]) -> None:
        found = registry.find("resources", options.name or name)
        author = found(options.options, name=name)
        assert isinstance(author, Resources)
        if author.stateful:
            raise gymq.OptionsError(
                f"verifiers.{name}: it keeps a state for each rollout, which it would not have here"
            )
        self.name = name
        self._author = author
        self._owner = owner
        self._worker: ResourcesWorker | None = None

    async def start(self) -> None:
        await self._author.start()

    async def stop(self) -> None:
        await self._author.stop()

    async def answer(self, request: gymq.VerifyRequest[Any]) -> dict[str, Any]:
        """The whole answer of the verifier, with `reward`.

        Raises:
            RolloutError: it gave no verdict.
        """
        row = request.row.model_dump_json(exclude_unset=True).encode()
        call = current_call.get()
        message = Verify(rollout=call.rollout, timeout_s=600.0, number=1, row=row, response=dict(request.response))
        try:
            verified = await self._served().without_session(message)
        except gymq.RolloutError as error:
            if error.failure_class in _FLAGS:
                raise
            raise gymq.ComponentFailed(f"the verifier {self.name} gave no verdict: {error.message}") from None
        assert isinstance(verified, Verified)
        return {"reward": verified.reward, **verified.verdict}

    def _served(self) -> ResourcesWorker:
        """With what the owner was given after its start."""
        if self._worker is None:
            if hasattr(self._owner, "models"):
                self._author.models = self._owner.models
            self._worker = ResourcesWorker(self._author, self._owner.processes)
        return self._worker
