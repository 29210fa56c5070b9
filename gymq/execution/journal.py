"""The journal of one rollout: its agent's effects, so that another process resumes where the first one died.

Each entry names the stream sequence of the entry before it, and the server refuses it if another came in between. An
agent that was taken for dead and comes back is thus stopped at its next entry. Replies of a model and of stateless
workers are written before anything else happens. Replies of a session wait for the next entry: until then its worker
answers a repeated call from memory, and a call that opens one may be repeated. So a session is closed only after the
next entry, or after the rollout's outcome is stored.

An effect is known by its key, so that a loop may wait for several at the same time. Those that a replay asks for at the
same time are answered in the order in which they were recorded.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from gymq.bus import Bus, BusError, blobs, streams
from gymq.bus.rpc.quarantine import Suspect
from gymq.bus.rpc.tries import decode_reply
from gymq.execution.fencing import PATIENCE_S, Fenced, decode_entry
from gymq.processes.background import RunningTasks
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.journal_messages import Effect, JournalEntry
from gymq.protocol.messages import BadMessage, Message, Task

log = logging.getLogger("gymq.journal")

MAX_ALONE = 5  # processes that may die after they began a rollout alone, wherever they got with it
DROPPED_TTL = "60s"
ORDER_PATIENCE_S = 5.0  # for a loop to ask for what was recorded before the reply that it waits for


class Journal:
    """Records the effects of one rollout, and answers those that are recorded already.

    Its methods raise Fenced where another process has taken over the rollout.
    """

    def __init__(self, bus: Bus, task: Task, worker: str, suspect: Suspect | None = None) -> None:
        """Prepare the journal of a rollout.

        Args:
            suspect: the place of a task in quarantine; cleared with the first effect that is new.
        """
        self._bus = bus
        self._js = bus.js
        self._rollout = task.rollout_id
        self._subject = subjects.JOURNAL.of(*self._rollout)
        self._replaces = task.replaces
        self._suspect = suspect
        self._is_alone = False  # says the journal, and nothing that came later
        # With a mark of its own: two holders in one process may write the very same.
        self._worker = f"{worker}/{secrets.token_hex(4)}"
        self._last_sequence = 0
        self._recorded: OrderedDict[str, Effect] = OrderedDict()  # not replayed yet, by key, in order
        self._num_effects = 0
        self._unwritten: list[Effect] = []
        self._written_session: str | None = None
        self._num_started = 0
        self._num_in_flight = 0
        self._waiting: dict[str, asyncio.Future[None]] = {}  # replays whose turn has not come, by key
        self._new: list[asyncio.Future[None]] = []  # new replies that let those go first
        self._writing = asyncio.Lock()
        self._writes = RunningTasks()  # of what cancelled calls left
        self._maybe_stored: list[bytes] = []  # entries whose writers heard no answer: the last one may be stored
        self._failed: BusError | None = None
        self._to_close: list[Callable[[], Awaitable[None]]] = []  # sessions whose last replies may not be written yet
        self.attempt = 0
        self.num_failures = 0  # of the attempts before, as in `JournalEntry`
        self.session: str | None = None  # where the rollout's session was moved to
        self.num_replayed = 0

    @property
    def num_recorded(self) -> int:
        """Effects of an earlier delivery that were not replayed yet."""
        return len(self._recorded)

    async def take_over(self, *, is_redelivered: bool = False) -> str:
        """Read the journal of an earlier delivery of the task, and fence off any process that may still be writing.

        The journal of an earlier task for the same rollout is skipped.

        Args:
            is_redelivered: whether another process had the task, which is fenced off also if it has recorded nothing.

        Returns:
            Why the rollout must not be tried again: a process died while it worked on this rollout alone and had
            recorded nothing new, or too many died after they had begun it alone. Empty: it may be.

        Raises:
            Fenced: another process took over at the same moment.
        """
        num_alone = 0
        died_alone = False
        recorded: list[Effect] = []
        async for stored in self._js.read(streams.JOURNAL, self._subject):
            self._last_sequence = stored.sequence
            try:
                entry = await blobs.read(self._bus, stored.data, decode_entry, "rollout")
            except BadMessage as error:
                log.warning("journal of %s: %s; starting over", self._subject, error)
                self._forget()
                recorded.clear()
                continue
            if entry.replaces != self._replaces:
                continue
            num_alone += entry.alone
            died_alone = entry.alone or (died_alone and not entry.effects and not entry.survived)
            num_alone -= entry.survived
            if entry.attempt > self.attempt:
                self._forget()
                recorded.clear()
                self.attempt, self.num_failures = entry.attempt, entry.num_failures
            for effect in entry.effects:
                del recorded[effect.number :]
                recorded.append(effect)
            self.session = self._written_session = entry.session or self.session
        self._recorded.update((effect.key, effect) for effect in recorded)
        self._num_effects = len(recorded)
        alone = self._suspect is not None and self._suspect.alone
        self._is_alone = alone  # whether or not the write below is cancelled: it may be stored
        if self._last_sequence or alone or is_redelivered:
            await self._write(alone=alone)
        if died_alone:
            return "an agent process died while it worked on this task and on nothing else"
        if num_alone >= MAX_ALONE:
            return f"{num_alone} agent processes died that had started this task with nothing else in them"
        return ""

    async def start_attempt(self, attempt: int, num_failures: int) -> None:
        """Start a new attempt; what was recorded no longer counts.

        Args:
            num_failures: as in `JournalEntry`.
        """
        async with self._writing:
            self._forget()
            self.attempt, self.num_failures = attempt, num_failures
            await self._write()
        await self._close_sessions()

    def close_later(self, close: Callable[[], Awaitable[None]]) -> None:
        """Close a session of the rollout once another process would not ask it again."""
        self._to_close.append(close)

    async def _close_sessions(self) -> None:
        while self._to_close:
            await self._to_close.pop()()

    async def effect(self, key: str, may_wait: bool, perform: Callable[[], Awaitable[Message]]) -> Message:
        """Return the reply of an effect: the recorded one, or that of `perform`, which is then recorded.

        Args:
            key: what is asked, in short; no other effect of the attempt has it. A replay that asks for one thing after
                another, and for something else than was recorded, starts a journal of its own from there.
            may_wait: whether its reply may be recorded with the next entry: a repeated call is answered from memory, or
                does no harm.

        Raises:
            BusError, Fenced: not recorded.
        """
        if self._to_close:
            await self.flush()
            await self._close_sessions()
        alone = self._num_in_flight == 0
        self._num_in_flight += 1
        self._num_started += 1
        started = self._num_started
        if not alone:
            for effect in self._unwritten:
                effect.alone = False  # its write is in flight
        try:
            if self._recorded:
                if alone:
                    self._check_order(key)
                if key in self._recorded:
                    return await self._replay(key)
            reply = await perform()
            alone = alone and started == self._num_started
            self._unwritten.append(Effect(self._num_effects, key, encode(reply), alone))
            self._num_effects += 1
            if not may_wait or self._writing.locked():
                await self.flush()
            await self._after_replays()
            return reply
        finally:
            self._num_in_flight -= 1

    async def survived(self) -> None:
        """Record that this rollout did not kill the process that it had to itself, for when the process ends later.

        New effects show it as well, but a rollout that waits for its verdict has none.
        """
        if self._suspect is not None:
            self._suspect.clear()
        try:
            async with self._writing:
                if self._is_alone:
                    await self._write(survived=True)
                    self._is_alone = False
        except BusError as error:
            log.info("journal of %s: %s", self._subject, error)

    async def moved(self, session: str) -> None:
        """Record that the rollout's session was rebuilt in another worker."""
        self.session = session
        await self.flush()

    def _check_order(self, key: str) -> None:
        """Leave out what is recorded from here on if the loop asked for something else here, and for nothing beside."""
        first = next(iter(self._recorded.values()))
        if first.key != key and first.alone:
            text = "the agent asks %s where it had asked %s; ignoring the rest of the journal"
            log.warning(text, key, first.key)
            self._num_effects = min(effect.number for effect in self._recorded.values())
            self._recorded.clear()

    async def _replay(self, key: str) -> Message:
        """Return a recorded reply when those recorded before it were returned."""
        try:
            if key != next(iter(self._recorded)):
                await self._turn(key)
            reply: Message = decode_reply(self._recorded[key].reply)
            self.num_replayed += 1
            return reply
        finally:
            self._recorded.pop(key, None)
            self._wake_first()

    async def _after_replays(self) -> None:
        """Let recorded replies whose turn has come go first: they came before anything new."""
        if next(iter(self._recorded), "") in self._waiting:
            turn = asyncio.get_running_loop().create_future()
            self._new.append(turn)
            await turn

    async def _turn(self, key: str) -> None:
        """Wait until a recorded reply is the first one that is left, but not for what is never asked for again."""
        turn = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            while not turn.done():
                await asyncio.wait([turn], timeout=ORDER_PATIENCE_S)
                if not turn.done():
                    self._pass_over()
        finally:
            del self._waiting[key]

    def _pass_over(self) -> None:
        """Move the first replies, which no call is waiting for, behind those that came later."""
        while (first := next(iter(self._recorded))) not in self._waiting:
            log.info("the agent did not repeat the call %s; replaying later effects first", first)
            self._recorded.move_to_end(first)
        self._wake_first()

    def _wake_first(self) -> None:
        first = self._waiting.get(next(iter(self._recorded), ""))
        woken = self._new if first is None else [first]
        for turn in woken:
            if not turn.done():
                turn.set_result(None)
        if first is None:
            self._new = []

    async def drop(self) -> None:
        """Close what is left of a rollout that has its outcome, and delete its journal. One that stays is harmless.

        It stays where another process writes it by now, such as one that retries the rollout after its failure.
        """
        await self._close_sessions()
        if not self._last_sequence:
            return
        body = encode(self._entry())
        try:
            async with self._writing:
                # A rollup takes the place of all entries in one message, which expires by itself.
                headers = {"Nats-Rollup": "sub", "Nats-TTL": DROPPED_TTL}
                headers["Nats-Expected-Last-Subject-Sequence"] = str(self._last_sequence)
                await self._bus.publish(self._subject, body, headers=headers)
        except BusError as error:
            log.info("journal of %s not dropped: %s", self._subject, error)

    async def flush(self) -> None:
        """Write the effects that are not written yet; those of concurrent calls go into one entry.

        What a call that is cancelled leaves is written in the background, with the same numbers: it is paid for.
        """
        try:
            await self._write_effects()
        except asyncio.CancelledError:
            self._writes.start(self._write_left_over())
            raise

    async def confirm(self) -> None:
        """Make sure that no other process has taken the rollout over, before this one ends it without a verdict.

        A process that was frozen may wake up past a time limit, while another one continues the rollout.
        """
        await self.flush()
        async with self._writing:
            await self._write()
        await self._close_sessions()

    async def _write_left_over(self) -> None:
        with suppress(BusError):  # Those who ask again get it from `_failed`.
            await self._write_effects()

    async def _write_effects(self) -> None:
        async with self._writing:
            if self._failed is not None:
                raise self._failed
            if not self._unwritten and self.session == self._written_session:
                return
            effects, self._unwritten = self._unwritten, []
            try:
                await self._write(effects, self.session)
            except asyncio.CancelledError:
                self._unwritten[:0] = effects
                raise
            except BusError as error:
                self._failed = error
                raise
            self._written_session = self.session
            if effects:
                self._is_alone = False
                if self._suspect is not None:
                    self._suspect.clear()

    def _entry(self, effects: Sequence[Effect] = (), session: str | None = None, **marks: bool) -> JournalEntry:
        return JournalEntry(
            attempt=self.attempt,
            num_failures=self.num_failures,
            worker=self._worker,
            effects=list(effects),
            session=session,
            replaces=self._replaces,
            **marks,
        )

    async def _write(self, effects: Sequence[Effect] = (), session: str | None = None, **marks: bool) -> None:
        entry = encode(self._entry(effects, session, **marks))
        self._last_sequence = await self._store(
            await blobs.fit(self._bus, entry, "rollout", self._rollout, label="journal")
        )
        self._maybe_stored.clear()

    async def _store(self, body: bytes) -> int:
        while True:
            try:
                newest = await self._js.publish_or_last(
                    streams.JOURNAL, self._subject, body, last=self._last_sequence, patience_s=PATIENCE_S
                )
            except (BusError, asyncio.CancelledError):
                self._maybe_stored.append(body)
                raise
            if newest is not None and newest.data == body:
                return newest.sequence
            if newest is None or newest.data not in self._maybe_stored:
                raise Fenced(f"{self._subject} was taken over")
            self._last_sequence = newest.sequence
            self._maybe_stored.clear()

    def _forget(self) -> None:
        self._recorded.clear()
        self._wake_first()
        self._unwritten.clear()
        self._num_effects = 0
        self.session = self._written_session = None
