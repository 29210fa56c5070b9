"""A judge for the tests of environments."""

import re
from collections.abc import Mapping
from typing import Any

from gymq import FailureClass, RolloutError
from gymq.testing import ScriptedModel, reply


class Judge(ScriptedModel):
    """Replies with these texts in turn, or by the first of `answers` whose key the prompt contains; else it fails.

    A list instead of a text has the parts of the reply.

    Attributes:
        params: of each request.
        asked: the prompt of each request.
    """

    def __init__(self, *texts: str | list[Any] | None, answers: Mapping[str, str] | None = None) -> None:
        super().__init__(self._say)
        self.params: list[dict[str, Any]] = []
        self._texts = iter(texts)
        self._answers = answers

    @property
    def asked(self) -> list[str]:
        return [params["input"][-1]["content"] for params in self.params]

    async def _say(self, _model: str, params: dict[str, Any]) -> dict[str, Any]:
        self.params.append(params)
        text = next(self._texts, None)
        if self._answers is not None:
            text = next((answer for part, answer in self._answers.items() if part in self.asked[-1]), None)
        if text is None:
            raise RolloutError(FailureClass.MODEL_FAILED, "out of memory")
        return reply(text) if isinstance(text, str) else reply(*text)


def plain(prompt: str) -> str:
    """Return a judge's prompt with the names that its sections have in the template."""
    return re.sub(r"(</?\w+)_[0-9a-f]{8}>", r"\1>", prompt)
