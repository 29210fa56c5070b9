"""AskingEnvironment: an environment that holds the conversation itself, like a program that asks a model."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pydantic

from gymq import responses
from gymq.authoring import current_call
from gymq.failures import InvalidTask, ToolError, failing_as
from gymq.protocol.messages import FailureClass, Stage
from gymq.resources import Judged, Resources, RowT, Tool, VerifyRequest
from gymq.resources.judge_calls import JudgeCalls, recorded_calls
from gymq.responses import Item

CLOSE_S = 30.0


class Policy:
    """The model of a rollout, as `AskingEnvironment.play` asks it."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[_Call] = asyncio.Queue()

    async def ask(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the model; its reply is a Responses object. Concurrent calls are answered one after the other.

        Args:
            params: parameters of a Responses request.

        Raises:
            InvalidRequest: they do not fit; the error has the path.
        """
        asked = responses.validate_params(dict(params))
        if isinstance(asked["input"], str):
            asked["input"] = [responses.user_message(asked["input"])]
        call = _Call(asked)
        self._waiting.put_nowait(call)
        return await call.reply

    async def next_call(self) -> _Call:
        """Return the next call whose caller still waits for the reply."""
        while True:
            call = await self._waiting.get()
            if not call.reply.done():
                return call


class _Call:
    """A call to the model that waits for its reply."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        self.reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()


class Play:
    """One rollout in an `AskingEnvironment`, the state of its session.

    Attributes:
        replies: replies of the model so far.
        is_begun: an agent has asked for the first call, or the replies came from a stored response.
        is_replayed: the replies came from a stored response.
        judge_calls: those of `play`, since it began or ran again.
        failure_reported: `play` ended with an error, and `result` raised it.
    """

    def __init__(self, environment: AskingEnvironment[Any], row: Any) -> None:
        self.replies: list[dict[str, Any]] = []
        self.is_begun = False
        self.is_replayed = False
        self.failure_reported = False
        self._environment = environment
        self._row = row
        self._start()

    def _start(self) -> None:
        self._policy = Policy()
        self._open: _Call | None = None  # it waits for its reply
        self._conversation: list[Item] = []  # the input of the last call, and the reply to it
        self._context = contextvars.copy_context()
        self.judge_calls = JudgeCalls()
        self._context.run(recorded_calls.set, self.judge_calls)
        self._running = asyncio.create_task(self._play(), context=self._context)

    async def _play(self) -> Judged:
        return await self._environment.play(self._row, self._policy)

    @property
    def waits_for_reply(self) -> bool:
        return self._open is not None

    @property
    def _failed(self) -> bool:
        return self._running.done() and (self._running.cancelled() or self._running.exception() is not None)

    async def next_call(self) -> dict[str, Any] | None:
        """Return the parameters of the next call to the model; None if `play` has ended."""
        self.is_begun = True
        # Calls of `play` to judges belong to the request that is handled now.
        self._context.run(current_call.set, current_call.get())
        waiting = asyncio.ensure_future(self._policy.next_call())
        try:
            await asyncio.wait([waiting, self._running], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return None
            self._open = waiting.result()
            return self._open.params
        finally:
            waiting.cancel()

    def answer(self, reply: dict[str, Any]) -> None:
        """Pass the model's reply to the waiting call."""
        assert self._open is not None
        self._conversation = [*self._open.params["input"], *reply["output"]]
        if not self._open.reply.done():
            self._open.reply.set_result(reply)
        self._open = None

    def num_kept(self, params: Mapping[str, Any]) -> int:
        """Return how many items at the start of a call repeat the last call and its reply."""
        kept = 0
        for had, has in zip(self._conversation, params["input"], strict=False):
            if not responses.asks_the_same(had, has):
                break
            kept += 1
        return kept

    async def result(self) -> Judged:
        """Return the result of `play`. If it failed before, run it again over the same replies, without model calls.

        Raises:
            InvalidTask: it waits for another reply.
            Exception: as `play` raised it.
        """
        if self.failure_reported:
            await self._run_again()
        if self.waits_for_reply or await self.next_call() is not None:
            raise InvalidTask(f"{self._environment.name}: the response ends before the environment has finished")
        self.failure_reported = self._failed
        return self._running.result()

    async def _run_again(self) -> None:
        await self.close()
        self._start()
        for reply in self.replies:
            if await self.next_call() is None:
                return
            self.answer(reply)

    async def take_replies(self, prompt: Sequence[Item], output: Sequence[Mapping[str, Any]]) -> None:
        """Run `play` with the replies of a stored response, from the beginning.

        Args:
            prompt: items before the first reply; empty: any.
            output: replies, and the items between them.

        Raises:
            InvalidTask: the response is not one conversation with the environment, or `play` now asks differently.
        """
        if self.is_replayed:  # by a verification that may have failed on the way
            await self.close()
            self.replies, self.failure_reported = [], False
            self._start()
        self.is_replayed = True
        for number, (between, said) in enumerate(_turns(output)):
            call = await self.next_call()
            if call is None:
                if self._failed:
                    return  # `result` raises the error
                raise InvalidTask(f"{self._environment.name}: the response has more replies than were asked for")
            kept = self.num_kept(call)
            expected = [*prompt, *between] if number == 0 else between
            if kept < len(self._conversation) or not _fits(expected, call["input"][kept:], is_first=number == 0):
                text = "the response is not one conversation with it, or it asks something else by now"
                raise InvalidTask(f"{self._environment.name}: {text}; `answering_agent` plays it")
            self.replies.append(_reply({"output": said}))
            self.answer(self.replies[-1])

    async def close(self) -> None:
        """Cancel `play`, and wait up to `CLOSE_S` for its end."""
        self._running.cancel()
        await asyncio.wait([self._running], timeout=CLOSE_S)
        if self._running.done() and not self._running.cancelled():
            self._running.exception()  # mark it as retrieved


async def _next(worker: AskingEnvironment[Any], state: Play, reply: dict[str, Any] | None) -> dict[str, Any]:
    """Take the reply to the last call, and return the next call, for the agent; none if the environment has finished.

    The input of the returned call lacks the items that repeat the last call and its reply; `keep` is their number.
    """
    if state.waits_for_reply != (reply is not None):
        raise ToolError(400, "reply: expected with every request but the first")
    if reply is not None:
        try:
            state.replies.append(_reply(reply))
        except responses.InvalidReply as error:
            raise ToolError(422, f"reply.{error}") from None
        state.answer(state.replies[-1])
    call = await state.next_call()
    if call is None:
        if not state.replies:
            await worker.verdict_of(state)  # `play` ended without a model call: report its error
        return {"call": None}
    kept = state.num_kept(call)
    return {"call": {**call, "input": call["input"][kept:]}, "keep": kept}


class AskingEnvironment(Resources[RowT, Play]):
    """An environment that asks the model itself: define `play`; `answering_agent` brings the model's replies.

    For programs and libraries that contain the loop of a rollout. The agent asks the model through the queue, with
    tokens, journal and deadline. When a worker dies, `play` runs again over the replies so far, and must make the same
    calls.
    """

    replayable = True
    played_by = "answering_agent"

    tools: ClassVar[dict[str, Tool]] = {
        "next": Tool(
            "next", _next, True, pydantic.create_model("next_arguments", reply=(dict[str, Any] | None, None)), False
        ),
    }

    async def play(self, row: RowT, policy: Policy) -> Judged:
        """Hold the conversation with the model and return the verdict.

        If it fails after the last reply, as when a judge does not answer, it runs again over the same replies.

        Raises:
            ComponentFailed: a service that the environment needs did not answer.
        """
        raise NotImplementedError

    async def open(self, row: Any) -> Play:
        """Begin a conversation."""
        return Play(self, row)

    async def close(self, state: Play) -> None:
        await state.close()

    async def verify(self, request: VerifyRequest[RowT, Play]) -> Judged:
        """Return the verdict of `play`. In a session without an agent, it runs over the replies of the response.

        Raises:
            InvalidTask: the response is not a conversation with this environment.
        """
        play = request.state
        if play is None:
            raise InvalidTask(f"{self.name} is verified in the session in which it was played")
        if play.is_replayed or not play.is_begun:
            given = request.row.responses_create_params["input"]
            prompt = [responses.user_message(given)] if isinstance(given, str) else given
            await play.take_replies(prompt, request.response["output"])
        judged = await play.result()
        if (calls := recorded_calls.get()) is not None:
            calls.extend(play.judge_calls)
        return judged

    async def verdict_of(self, play: Play) -> Judged:
        """Return the verdict of a conversation.

        Raises:
            RolloutError: `play` failed.
        """
        with failing_as(FailureClass.VERIFIER_FAILED, f"{self.name} failed to play", Stage.TOOL):
            return await play.result()


def _reply(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reply as a whole Responses object.

    Raises:
        InvalidReply: a field does not fit.
    """
    return responses.validate_response({**responses.response_without_model("policy", []), **given})


def _fits(expected: Sequence[Item], asked: Sequence[Item], *, is_first: bool) -> bool:
    """Return whether a call added the stored items; the first prompt may be left to the environment."""
    if is_first and not expected:
        return True
    return len(expected) == len(asked) and all(map(responses.asks_the_same, expected, asked))


def _turns(output: Sequence[Mapping[str, Any]]) -> Iterator[tuple[list[Item], list[Item]]]:
    """Yield each reply together with the items between it and the previous reply."""
    between: list[Item] = []
    said: list[Item] = []
    for item in output:
        if responses.is_generated(item):
            said.append(dict(item))
            continue
        if said:
            yield between, said
            between, said = [], []
        between.append(dict(item))
    if said:
        yield between, said
