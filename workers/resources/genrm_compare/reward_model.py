"""Asking the reward model to compare two answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gymq.workers.resources.genrm_compare.aggregation import Answer, Comparison
from gymq.workers.resources.genrm_compare.scores import Scores

import gymq
from gymq.judge import Judge
from gymq.responses import output_text

BLANK = "None"  # what the model is shown of an answer without text


class RewardModel:
    """Compares answers. A reply without scores is asked for again; after some times it counts as neutral."""

    def __init__(
        self,
        judge: Judge,
        default: Scores,
        read: Callable[[str, Scores], Scores | None],
        *,
        retries: int,
        pause_s: float,
    ) -> None:
        """
        Args:
            default: the neutral scores.
            read: reads scores, with the default for fields that are missing; None if there are none.
            retries: how often to ask again.
            pause_s: seconds before that.
        """
        self._judge = judge
        self._default = default
        self._retries = retries
        self._pause_s = pause_s
        self._read = read

    async def compare(
        self, conversation: list[dict[str, str]], principle: str | None, places: tuple[int, int, int], *both: Answer
    ) -> Comparison:
        """Return one comparison. A model that cannot be asked gives the neutral scores, marked as failed.

        Args:
            places: of the first answer, of the second, and the judge's number.
        """
        metadata = {f"response_{number}": _text(answer) for number, answer in enumerate(both, 1)}
        if principle is not None:
            metadata["principle"] = principle
        request: dict[str, Any] = {"input": conversation, "metadata": metadata}
        for remaining in range(self._retries, -1, -1):
            try:
                response = await self._judge.send(request)
            except gymq.JudgeFailed:
                return Comparison(*places, self._default, failed=True)
            scores = self._read(output_text(response), self._default)
            if scores is not None:
                return Comparison(*places, scores)
            if remaining:
                await asyncio.sleep(self._pause_s)
        return Comparison(*places, self._default)


def _text(answer: Answer) -> str:
    return answer.text if answer.text.strip() else BLANK
