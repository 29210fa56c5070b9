"""The agent: the loop that turns a task into a verified rollout, as an author writes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from gymq.agent.calls import handed_over
from gymq.agent.options import AgentOptions
from gymq.agent.rollout import Rollout
from gymq.agent.session import Session
from gymq.authoring import Worker
from gymq.errors import BusError
from gymq.failures import RolloutError
from gymq.protocol.codec import check_encodable
from gymq.protocol.messages import BadMessage, FailureClass, Stage
from gymq.resources import Verdict


class OwnVerifier(NamedTuple):
    """The resources worker of an agent, started if the configuration names none."""

    implementation: str
    options: dict[str, Any]


class Agent(Worker):
    """Turns a task into a verified rollout. Most agents define `converse`; for another order define `run`."""

    Options = AgentOptions
    max_concurrency = 16_384  # rollouts in flight in one process; most of them wait

    @classmethod
    def own_verifier(cls, options: Mapping[str, Any]) -> OwnVerifier | None:
        """Return the resources worker to use if the configuration names none; None: the agent works without one.

        Args:
            options: the unchecked options of the instance, as configured.
        """
        return None

    def journals(self, rollout: Rollout) -> bool:
        """Return whether to record the rollout's effects, so that it resumes if this process dies.

        A journal costs one stored message for each model call; without it an interrupted rollout starts over.
        """
        return True

    async def run(self, rollout: Rollout) -> Verdict:
        """Run the whole rollout: seed, converse, verify.

        Raises:
            RolloutError: there is no verdict.
        """
        async with rollout.session() as session:
            await self.converse(rollout, session)
            if self.options.skip_verification:
                return Verdict(self.options.skip_verification_reward, verification_skipped=True)
            return await session.verify(rollout.response)

    async def converse(self, rollout: Rollout, session: Session) -> None:
        """Hold the conversation of model and tools, without seeding and verifying.

        Args:
            rollout: the conversation: `respond` asks the model, `record` adds an item.
            session: the environment of this rollout, seeded: `call` runs a tool.

        Raises:
            RolloutError: a call failed finally, which ends the rollout; do not catch it.
        """
        raise NotImplementedError


async def run_to_verdict(agent: Agent, rollout: Rollout) -> Verdict:
    """Run an agent's loop over a rollout, and cancel the calls that it leaves in flight.

    Raises:
        RolloutError: the rollout has no valid verdict.
        BusError: the agent's effects cannot be recorded.
        Exception: any other error of the loop.
    """
    try:
        verdict = await agent.run(rollout)
    except BaseException as error:
        rollout.end(handed_over=handed_over(error))
        cause = _cause(error)
        if cause is error:
            raise
        raise cause from error
    rollout.end()
    if not isinstance(verdict, Verdict) or not math.isfinite(verdict.reward):
        text = f"{agent.name} returned {verdict!r:.200}, no Verdict with a finite reward"
        raise RolloutError(FailureClass.AGENT_FAILED, text, stage=Stage.AGENT)
    try:
        check_encodable(verdict.fields, "$.verdict")
    except BadMessage as error:
        text = f"{agent.name} returned a verdict with a field that cannot be encoded: {error}"
        raise RolloutError(FailureClass.AGENT_FAILED, text, stage=Stage.AGENT) from None
    return verdict


def _cause(error: BaseException) -> BaseException:
    """Return the error that decides about the attempt: of a group, a BusError, else a RolloutError, else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    deciding = error.subgroup(BusError) or error.subgroup(RolloutError) or error
    return _cause(deciding.exceptions[0])
