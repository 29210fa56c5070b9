"""Giving a dead letter back: a submission is submitted again, a failed rollout is put into the queue again."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gymq import subjects
from gymq.bus import Bus
from gymq.cancel import Cancellations
from gymq.dead_letters import Buried, DeadLetters
from gymq.discovery import is_running
from gymq.intake import read_submission
from gymq.jetstream import JetStream
from gymq.messages import BadMessage, DeadLetter, Rollout
from gymq.outcome_store import OutcomeStore
from gymq.tasks import read_task, submit

PATIENCE_S = 30.0


class NotReplayed(Exception):
    """A letter that stays where it is; one sentence why."""


class Replayed(StrEnum):
    """What came of a letter that is gone now."""

    AGAIN = "again"  # it is on its way
    NEEDLESS = "needless"  # the rollout has a reward by now


class Replay:
    """Gives letters back, over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._letters = DeadLetters(bus)
        self._cancellations: dict[str, Cancellations] = {}
        self._running: dict[str, bool] = {}

    async def replay(self, buried: Buried) -> Replayed:
        """Give a letter back and remove it. Said twice, it is on its way once.

        Raises:
            NotReplayed: it cannot succeed; nothing was changed.
            BusError: NATS did not answer; say it again.
        """
        letter = buried.letter
        if letter.subject == subjects.SUBMIT:
            await self._submit_again(buried)
            done = Replayed.AGAIN
        elif letter.rollout:
            done = await self._roll_out_again(letter)
        else:
            raise NotReplayed("nobody could read it, so it can only be dropped")
        await self._letters.remove(buried.number)
        return done

    async def _submit_again(self, buried: Buried) -> None:
        letter = buried.letter
        try:
            body = await self._letters.body(letter)
            _, _, agent = read_submission(body)
        except BadMessage as error:
            raise NotReplayed(f"it is no task: {error}") from None
        await self._check_running(agent)
        headers = {"Nats-Msg-Id": f"dead-letter/{buried.number}/{letter.at}"}
        await JetStream(self._bus).store_surely(letter.subject, body, headers, patience_s=PATIENCE_S)

    async def _roll_out_again(self, letter: DeadLetter) -> Replayed:
        try:
            task = await read_task(self._bus, letter.body)
        except BadMessage as error:
            raise NotReplayed(f"its task cannot be read: {error}") from None
        if await self._is_cancelled(task.run, task.task_index):
            raise NotReplayed("it was cancelled")
        found = await OutcomeStore(self._bus).find_outcome(task.run, task.task_index, task.rollout_index)
        if found is None:
            raise NotReplayed(f"run {task.run} holds no outcome of it any more")
        sequence, outcome = found
        if isinstance(outcome, Rollout):
            return Replayed.NEEDLESS
        await self._check_running(task.agent)
        urgent = letter.subject == subjects.urgent_tasks(task.run, task.agent)
        task = msgspec.structs.replace(task, replaces=sequence)
        await submit(self._bus, task, once=str(sequence), urgent=urgent, patience_s=PATIENCE_S)
        return Replayed.AGAIN

    async def _is_cancelled(self, run: str, task_index: int) -> bool:
        if run not in self._cancellations:
            cancellations = Cancellations(self._bus, lambda _run, _task_index: None)
            await cancellations.start(run)
            self._cancellations[run] = cancellations
        return (run, task_index) in self._cancellations[run]

    async def _check_running(self, agent: str) -> None:
        if agent not in self._running:
            self._running[agent] = await is_running(self._bus, agent, "agents", patience_s=0.0)
        if not self._running[agent]:
            raise NotReplayed(f"no agent named {agent!r} is running; `gymq status` lists those that are")
