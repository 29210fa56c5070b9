"""Verdicts of other environments, for an environment whose rows name their verifier."""

from __future__ import annotations

from typing import Any

import pydantic

from gymq.authoring import OptionsError, current_call
from gymq.execution.loading import registry
from gymq.execution.sessions import LocalResources
from gymq.failures import ComponentFailed, RolloutError
from gymq.protocol.messages import FailureClass, Verified, Verify
from gymq.resources import Resources, VerifyRequest

_PASSED_ON = {FailureClass.JUDGE_FAILED, FailureClass.INVALID_TASK}


class VerifierOptions(pydantic.BaseModel):
    """Which worker verifies, and its options."""

    model_config = pydantic.ConfigDict(extra="forbid")

    type: str = "resources_servers"
    name: str | None = None  # of the implementation; default: the name by which rows call it
    options: dict[str, Any] = {}


class DelegatedVerifier:
    """The verifier of another environment, run in this process.

    It is not asked over NATS, since the role `resources` may not call other environments.
    """

    def __init__(self, name: str, options: VerifierOptions, owner: Resources[Any]) -> None:
        """Build the other environment; `start` starts it.

        Args:
            name: the name by which rows refer to it.
            owner: the environment that asks; its processes and its models serve both.

        Raises:
            OptionsError: an option does not fit, or the other environment keeps state, which has no session here.
            WorkerNotFound: there is no such environment.
        """
        found = registry.find_class("resources", options.name or name)
        author = found(options.options, name=name)
        assert isinstance(author, Resources)
        if author.stateful:
            raise OptionsError(
                f"verifiers.{name}: it keeps state for each rollout, which a delegated verifier does not have"
            )
        self.name = name
        self._author = author
        self._owner = owner
        self._worker: LocalResources | None = None

    async def start(self) -> None:
        """Start the other environment."""
        await self._author.start()

    async def stop(self) -> None:
        """Stop the other environment."""
        await self._author.stop()

    async def answer(self, request: VerifyRequest[Any]) -> dict[str, Any]:
        """Return the whole verdict, with `reward` and its other fields.

        Raises:
            RolloutError: there is no verdict.
        """
        row = request.row.model_dump_json(exclude_unset=True).encode()
        call = current_call.get()
        message = Verify(rollout=call.rollout, timeout_s=600.0, number=1, row=row, response=dict(request.response))
        try:
            verified = await self._served().without_session(message)
        except RolloutError as error:
            if error.failure_class in _PASSED_ON:
                raise
            raise ComponentFailed(f"the verifier {self.name} gave no verdict: {error.message}") from None
        assert isinstance(verified, Verified)
        return {"reward": verified.reward, **verified.verdict}

    def _served(self) -> LocalResources:
        if self._worker is None:
            # Not before: its owner is given models after it was started.
            if hasattr(self._owner, "models"):
                self._author.models = self._owner.models
            self._worker = LocalResources(self._author, self._owner.processes)
        return self._worker
