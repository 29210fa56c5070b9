"""Try a Resources class without a server: the same code paths as in a cluster, in this process."""

from __future__ import annotations

import json
from typing import Any, Generic, Self

from typing_extensions import TypeVar

from gymq.execution.loading.contract import check_contract
from gymq.execution.sessions import LocalResources
from gymq.processes import KillableProcesses
from gymq.protocol.messages import Seed, ToolCall, ToolResult, Verify
from gymq.resources import ModelCaller, Resources, Verdict

_TIMEOUT_S = 600.0

ResourcesT_co = TypeVar("ResourcesT_co", bound=Resources[Any], default=Resources[Any], covariant=True)


class HarnessSession:
    """One session of a harness."""

    def __init__(self, worker: LocalResources, session_id: str | None) -> None:
        self._worker = worker
        self._id = session_id
        self._calls = 0

    async def seed(self, row: dict[str, Any]) -> None:
        """Seed the session, also again."""
        if self._id is not None:
            await self._worker.in_session(self._id, Seed(rollout="test", timeout_s=_TIMEOUT_S, row=_json(row)))

    async def call(self, name: str, arguments: Any) -> ToolResult:
        """Call a tool as the model would; `arguments` is any JSON value."""
        self._calls += 1
        request = ToolCall(
            rollout="test", timeout_s=_TIMEOUT_S, number=self._calls, name=name, arguments=json.dumps(arguments)
        )
        answer = await self._send(request)
        assert isinstance(answer, ToolResult)
        return answer

    async def verify(self, row: dict[str, Any], response: dict[str, Any]) -> Verdict:
        """Score a response in this session.

        Args:
            row: as a line of a data set, with `responses_create_params`.
            response: a Responses object, such as `reply` makes.

        Raises:
            RolloutError: the verification failed.
        """
        self._calls += 1
        request = Verify(rollout="test", timeout_s=_TIMEOUT_S, number=self._calls, row=_json(row), response=response)
        answer = await self._send(request)
        return Verdict(answer.reward, **answer.verdict)

    async def close(self) -> None:
        """Close it, as the end of its rollout does."""
        if self._id is not None:
            await self._worker.close(self._id)

    async def _send(self, request: ToolCall | Verify) -> Any:
        if self._id is None:
            return await self._worker.without_session(request)
        return await self._worker.in_session(self._id, request)


class Harness(Generic[ResourcesT_co]):
    """Runs a Resources class in this process. Failures arrive as `gymq.RolloutError`."""

    def __init__(
        self,
        resources: type[ResourcesT_co],
        options: dict[str, Any] | None = None,
        *,
        models: ModelCaller | None = None,
        processes: KillableProcesses | None = None,
    ) -> None:
        """Check the class and build the worker.

        Args:
            models: answers requests to judges.
            processes: processes shared with other harnesses; None: its own, which end with it.

        Raises:
            InvalidWorker: the class is not a valid worker.
            OptionsError: an option does not fit.
        """
        check_contract(resources)
        self.author = resources(options)
        if models is not None:
            self.author.models = models
        self._own_processes = KillableProcesses() if processes is None else None
        self.worker = LocalResources(self.author, processes or self._own_processes)

    async def __aenter__(self) -> Self:
        await self.author.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.worker.close_all()
        await self.author.stop()
        if self._own_processes is not None:
            self._own_processes.close()

    async def session(self, row: dict[str, Any] | None) -> HarnessSession:
        """Open a session seeded with the row; None leaves it unseeded."""
        request = Seed(rollout="test", timeout_s=_TIMEOUT_S, row=None if row is None else _json(row))
        seeded = await self.worker.open(request, "*")
        return HarnessSession(self.worker, seeded.session)

    async def verify(self, row: dict[str, Any], response: dict[str, Any]) -> Verdict:
        """Score a response in a new session; arguments and errors are those of `HarnessSession.verify`."""
        return await (await self.session(row)).verify(row, response)


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()
