"""Asking a judge: one request with a label in its reply, several at once, the same one in both orders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from gymq.judge.options import JudgeOptions
from gymq.resources import Need, Resources, RowT
from gymq.resources.judge_calls import recorded_calls
from gymq.resources.resources import StateT


@dataclass(frozen=True)
class Judgement:
    """One request to a judge, its reply, and the verdict in it.

    Attributes:
        label: the verdict; None if there is none in the reply.
    """

    request: dict[str, Any]
    response: dict[str, Any]
    label: str | None

    def members(self) -> dict[str, Any]:
        """Return the judgement as a field of a result row."""
        return {"request": self.request, "response": self.response, "verdict_label": self.label}


Reader = Callable[[dict[str, Any]], str | None]
"""Returns the label in a judge's response; None if there is none."""


class Judge:
    """The judge of one verifier, with a bound on the requests in flight; further ones wait for their turn."""

    def __init__(
        self,
        worker: Resources[Any],
        model: str,
        params: dict[str, Any],
        *,
        system_message: str | None = None,
        max_concurrency: int | None = 64,
    ) -> None:
        """Describe how a judge is asked.

        Args:
            worker: the caller.
            model: the judge's instance in the configuration.
            params: parameters of every request.
            max_concurrency: most requests in flight at a time; None: unlimited.
        """
        self._worker = worker
        self._model = model
        self._params = params
        self._system = [] if system_message is None else [{"role": "system", "content": system_message}]
        self._slots: AbstractAsyncContextManager[Any] = (
            nullcontext() if max_concurrency is None else asyncio.Semaphore(max_concurrency)
        )

    @classmethod
    def of(cls, worker: Resources[Any], options: JudgeOptions) -> Judge:
        """Return the judge that a verifier's options describe.

        Args:
            worker: the verifier.
            options: its options, or the part of them that is about the judge.
        """
        return cls(
            worker,
            options.judge_model_server.name,
            options.judge_responses_create_params,
            system_message=options.judge_system_message,
            max_concurrency=options.judge_endpoint_max_concurrency,
        )

    async def ask(self, prompt: str, read: Reader) -> Judgement:
        """Ask about one thing: the system message, if there is one, and the prompt as the user's message.

        Args:
            prompt: the whole text for the judge.
            read: returns the verdict in its response, such as `Question.read`.

        Raises:
            JudgeFailed: it could not be asked.
        """
        request = {**self._params, "input": [*self._system, {"role": "user", "content": prompt}]}
        return await self.judgement(request, read)

    async def judgement(self, request: dict[str, Any], read: Reader) -> Judgement:
        """Return the reply to a whole request with the verdict in it; the label is kept with the recorded call.

        Raises:
            JudgeFailed: it could not be asked.
        """
        response = await self.send(request)
        label = read(response)
        if (calls := recorded_calls.get()) is not None:
            calls.label(response, label)
        return Judgement(request, response, label)

    async def send(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a whole request.

        Raises:
            JudgeFailed: it could not be asked.
        """
        async with self._slots:
            return await self._worker.ask(self._model, {**self._params, **request})


ResultT = TypeVar("ResultT")


async def all_of(questions: Iterable[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """Ask several questions at once and return the answers in order. If one fails, the others are cancelled.

    Raises:
        JudgeFailed: one could not be asked.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(question) for question in questions]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


@dataclass(frozen=True)
class Comparison:
    """The verdict of a judge on two texts and, if it was asked again, on the same two exchanged."""

    judgements: list[Judgement]
    equal_label: str

    @property
    def agrees(self) -> bool:
        """Return whether it found them equal each time."""
        return all(judgement.label == self.equal_label for judgement in self.judgements)

    @property
    def swap_fails(self) -> bool:
        """Return whether it found them equal in one order only."""
        return len(self.judgements) > 1 and not self.agrees

    def members(self) -> list[dict[str, Any]]:
        """Return the judgements as a field of a result row."""
        return [judgement.members() for judgement in self.judgements]


async def compare(
    ask: Callable[[str, str], Awaitable[Judgement]], one: str, other: str, *, equal_label: str, swap: bool
) -> Comparison:
    """Ask whether two texts mean the same. A judge may favour a place, so it can be asked again with them exchanged.

    Args:
        ask: asks about a first and a second text.
        swap: whether to ask again if the first verdict is "equal".

    Raises:
        JudgeFailed: it could not be asked, the first or the second time.
    """
    judgements = [await ask(one, other)]
    if swap and judgements[0].label == equal_label:
        judgements.append(await ask(other, one))
    return Comparison(judgements, equal_label)


class JudgedEnvironment(Resources[RowT, StateT], Generic[RowT, StateT]):
    """An environment whose verifier asks a judge model, as `self.judge`."""

    Options = JudgeOptions

    deterministic: ClassVar[bool] = False
    needs: ClassVar[frozenset[Need]] = frozenset({"judge"})

    @cached_property
    def judge(self) -> Judge:
        """The judge that the options name."""
        return Judge.of(self, self.options)
