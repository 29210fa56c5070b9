"""An environment under audit: its worker, its gold replies, and a record of its verdicts."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from gymq.data.solutions import Action
from gymq.errors import UsageError
from gymq.ext.audit.gold import GoldRow, play
from gymq.ext.shared.checks import UNDECIDED
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass, ToolResult
from gymq.redaction import redact
from gymq.resources import Resources
from gymq.testing.harness import Harness, HarnessSession
from gymq.testing.scripts import ScriptedJudge

PLANTED_SECRET = "planted-by-the-audit-7d1f3c"
"""Value of each option whose name marks it as a secret."""

# Failures that are proper answers to a meaningless reply or row.
REFUSALS = UNDECIDED | {FailureClass.INVALID_TASK}

TRIES = 3  # for a verdict; the machine may be too busy for the verifier
OUTCOME_S = 120.0  # for one session
CHECK_S = 100.0  # for the replies of one check; slow environments answer only some of them


class Outcome(msgspec.Struct, frozen=True):
    """A reward, or the reason for a missing one."""

    reward: float | None = None
    failure: FailureClass | None = None
    message: str = ""

    def __str__(self) -> str:
        return f"reward {self.reward:g}" if self.reward is not None else f"{self.failure}: {self.message}"


class AuditedEnvironment:
    """The worker under audit. Use it with `async with`.

    Attributes:
        leaks: places where a planted secret was read.
        verdicts: number of rewards.
        slowest_s: longest time of a `timed` reply, in seconds.
    """

    def __init__(
        self, name: str, harness: Harness, gold: list[GoldRow], judge: ScriptedJudge, *, has_secrets: bool
    ) -> None:
        self.name = name
        self.gold = gold
        self.has_secrets = has_secrets
        self.leaks: list[str] = []
        self.verdicts = 0
        self.slowest_s = 0.0
        self.slowest = ""
        self._harness = harness
        self._judge = judge

    @property
    def author(self) -> Resources[Any]:
        """The worker."""
        return self._harness.author

    @property
    def limit_s(self) -> float | None:
        """Limit on one verdict, in seconds; None: only the time limit of the rollout."""
        return self.author.verify_timeout_s if type(self.author).verify is Resources.verify else None

    @property
    def has_tools(self) -> bool:
        """Whether the worker runs tool calls. A verifier of calls has no tools, and calls of its rows are never run."""
        return bool(self.author.tools) or type(self.author).call_tool is not Resources.call_tool

    async def __aenter__(self) -> AuditedEnvironment:
        try:
            await self._harness.__aenter__()
        except Exception as error:  # the author's `start` may raise anything
            said = str(error) if isinstance(error, RolloutError) else f"{type(error).__name__}: {error}"
            raise UsageError(f"{self.name}: it cannot be started: {said}") from error
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._harness.__aexit__(*details)

    @asynccontextmanager
    async def session(self, row: dict[str, Any]) -> AsyncIterator[HarnessSession]:
        """Open a session for a row and close it afterwards.

        Raises:
            RolloutError: the row is refused.
        """
        session = await self._harness.session(row)
        try:
            yield session
        finally:
            await session.close()

    async def outcome(
        self, row: dict[str, Any], reply: dict[str, Any] | list[Action], where: str, *, timed: bool = False
    ) -> Outcome:
        """Return the outcome of a reply in a new session. A failed verification is retried, as in a cluster.

        Args:
            where: name of the reply in reports.
            timed: whether to record the time; the reply runs alone.

        Raises:
            UsageError: no rule of the scripted judge fits a request.
        """
        for number in range(1, TRIES + 1):
            started = time.monotonic()
            try:
                async with asyncio.timeout(OUTCOME_S), self.session(row) as session:
                    response = reply if isinstance(reply, dict) else await self.play(reply, session, where)
                    started = time.monotonic()
                    found = await self.verified(session, row, response, where)
            except RolloutError as error:
                found = self._failed(error, where)
            except TimeoutError:
                return Outcome(None, FailureClass.DEADLINE_EXCEEDED, f"no verdict within {OUTCOME_S:g} s")
            if found.failure is not FailureClass.VERIFIER_FAILED or number == TRIES:
                break
        if timed and time.monotonic() - started > self.slowest_s:
            self.slowest_s = time.monotonic() - started
            self.slowest = where
        return found

    async def play(self, actions: list[Action], session: HarnessSession, where: str) -> dict[str, Any]:
        """Return the response of a policy that takes these actions.

        Raises:
            RolloutError: a call has no result.
        """
        response = await play(actions, session, has_tools=self.has_tools)
        self.look_for_secrets(json.dumps(response), f"{where}, a tool's output")
        return response

    async def verified(
        self, session: HarnessSession, row: dict[str, Any], response: dict[str, Any], where: str
    ) -> Outcome:
        """Return the outcome of a response in a session.

        Raises:
            UsageError: no rule of the scripted judge fits a request.
        """
        try:
            verdict = await session.verify(row, response)
        except RolloutError as error:
            return self._failed(error, where)
        self.verdicts += 1
        self.look_for_secrets(json.dumps(verdict.fields, default=str), f"{where}, the verdict")
        return Outcome(verdict.reward)

    async def call(self, session: HarnessSession, name: str, arguments: Any, where: str) -> ToolResult | RolloutError:
        """Call a tool and return its result or its error."""
        try:
            result = await session.call(name, arguments)
        except RolloutError as error:
            self.look_for_secrets(error.message, where)
            return error
        self.look_for_secrets(result.output, where)
        return result

    def look_for_secrets(self, text: str, where: str) -> None:
        """Record a leak if the text contains a planted secret."""
        if self.has_secrets and PLANTED_SECRET in text and len(self.leaks) < 20:
            self.leaks.append(f"{where}: it holds the value of an option that is a secret")

    @contextmanager
    def reading_logs(self) -> Iterator[None]:
        """Look for secrets in all log messages of the block, as they would be written."""
        handler = _Reader(self)
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)

    def _failed(self, error: RolloutError, where: str) -> Outcome:
        if self._judge.unknown:
            raise UsageError(
                f"{self.name}, {where}: undecided without a judge: {self._judge.unknown[0]}; add a rule to "
                "`judge` in data/gold.jsonl"
            )
        self.look_for_secrets(error.message, f"{where}, the failure")
        return Outcome(None, error.failure_class, error.message)


class _Reader(logging.Handler):
    def __init__(self, audited: AuditedEnvironment) -> None:
        super().__init__()
        self._audited = audited

    def emit(self, record: logging.LogRecord) -> None:
        self._audited.look_for_secrets(redact(record.getMessage()), f"the log of {record.name}")
