"""reasoning_gym: procedurally generated puzzles of the library reasoning-gym, scored by the library."""

from __future__ import annotations

from typing import Any

import pydantic
from gymq.workers.resources.reasoning_gym.scoring import check_row, prepare, published_score, score

import gymq
from gymq.authoring import check_installed
from gymq.ext.text import boxes, undressed
from gymq.processes import ComputeLimits, CpuTimeUsedUp
from gymq.responses import conclusion

OPENING, CLOSING, BOX = "<answer>", "</answer>", "\\boxed{"


class PuzzleRow(gymq.Row):
    question: str
    answer: str | None  # null where many answers are right
    metadata: dict[str, Any]  # what the task's scorer needs

    @pydantic.field_validator("metadata")
    @classmethod
    def _check_task(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        task = metadata.get("source_dataset")
        if not isinstance(task, str) or not task:
            raise ValueError("source_dataset must name a task of reasoning-gym")
        return metadata

    @pydantic.model_validator(mode="after")
    def _check_texts(self) -> PuzzleRow:
        check_row(self.metadata["source_dataset"], self.answer, self.metadata)
        return self


class ReasoningGym(gymq.Resources[PuzzleRow]):
    """The library's score of the answer; many tasks give a part of 1 for a part of the answer."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        hardened: bool = True  # False: the library's score also where it rewards an answer that says nothing

    # An answer such as 9**9**9 computes for ever or fills the memory; it is worth 0.
    compute_limits = ComputeLimits(cpu_s=20.0, timeout_s=400.0, max_memory_bytes=8 * 1024**3, prepare=prepare)

    async def start(self) -> None:
        check_installed("reasoning-gym", "reasoning_gym")
        if self.options.hardened:
            self._read, self._score = answer_as_meant, score
        else:
            self._read, self._score = published_answer, published_score

    async def verify(self, request: gymq.VerifyRequest[PuzzleRow]) -> gymq.Verdict:
        row = request.row
        task, answer = row.metadata["source_dataset"], self._read(request.reply_text, row.answer)
        entry = {"question": row.question, "answer": row.answer, "metadata": row.metadata}
        try:
            reward = await self.compute(self._score, task, answer, entry)
        except CpuTimeUsedUp:
            reward = 0.0
        return gymq.Verdict(reward, task_name=task, score=reward, extracted_answer=answer)


def answer_as_meant(reply: str, expected: str | None) -> str:
    """Return what the last pair of answer tags holds, or else the last box, or else all that follows the thoughts.

    The answer is trimmed, and without marks of LaTeX and Markdown around it if it then is the expected one.
    """
    reply = conclusion(reply)
    tagged, found = _last_tagged(reply), boxes(reply)
    answer = tagged if tagged is not None else found[-1].text if found else reply
    bare = undressed(answer)
    return bare if bare == expected else answer.strip()


def published_answer(reply: str, expected: str | None) -> str:
    """Return what the last pair of answer tags holds, or else the first box that is not empty, or else the whole reply.

    The answer is trimmed.
    """
    for found in (_last_tagged(reply), _first_boxed(reply)):
        if found is not None:
            return found.strip()
    return reply.strip()


def _last_tagged(reply: str) -> str | None:
    found, position = None, 0
    while (start := reply.find(OPENING, position)) >= 0:
        start += len(OPENING)
        end = reply.find(CLOSING, start)
        if end < 0:
            break
        found, position = reply[start:end], end + len(CLOSING)
    return found


def _first_boxed(reply: str) -> str | None:
    """Up to the first closing brace: braces inside a box are not counted."""
    position = 0
    while (start := reply.find(BOX, position)) >= 0:
        start += len(BOX)
        end = reply.find("}", start)
        if end < 0:
            break
        if end > start:
            return reply[start:end]
        position = end
    return None
