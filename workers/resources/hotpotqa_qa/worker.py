"""hotpotqa_qa: questions with a short answer, which the reply gives as JSON. It has to contain the expected one."""

from __future__ import annotations

import json
import re
from typing import Any

from gymq.workers.resources.hotpotqa_qa.scores import (
    contains,
    exact_match,
    has_word,
    published_has_word,
    says_the_other,
    spellings_of,
    token_f1,
    unreliable,
)

import gymq
from gymq.ext.text import code_blocks

_BRACE = re.compile(r"[{}]")


class AnswerRow(gymq.Row):
    expected_answer: str


class HotpotQa(gymq.Resources[AnswerRow]):
    """Reward 1 if the reply's answer contains the expected one in a known spelling, early if it is long."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        report_filtered_metrics: bool = True  # the peer's statistics have it; here without effect
        hardened: bool = True  # false: spellings inside of words count, as the peer has it

    async def start(self) -> None:
        self._has_word = has_word if self.options.hardened else published_has_word

    async def verify(self, request: gymq.VerifyRequest[AnswerRow]) -> gymq.Verdict:
        expected = request.row.expected_answer
        answer = find_answer(request.reply_text.strip())
        spellings = spellings_of(expected)
        correct = float(self._has_word(answer, spellings) and not says_the_other(answer, expected))
        reason = unreliable(expected)
        return gymq.Verdict(
            correct,
            expected_answer=expected,
            extracted_answer=answer or None,
            answer_em=exact_match(answer, expected),
            answer_f1=token_f1(answer, expected),
            is_correct=float(contains(answer, spellings)),
            is_correct_strict=correct,
            gt_should_remove=bool(reason),
            gt_remove_reason=reason,
        )


def find_answer(reply: str) -> str:
    """Return the answer in a trimmed reply, which is the whole reply if no JSON object has one.

    Objects in fenced blocks come first. What is not a text is written as Python writes it.
    """
    for found in (fenced_objects(reply), bare_objects(reply)):
        for text in reversed(found):
            answer = _answer_of(text)
            if answer is not None:
                return answer
    return reply


def fenced_objects(reply: str) -> list[str]:
    """Return the fenced blocks, of JSON or without a tag, that begin and end with a brace."""
    blocks = [block.text.strip() for block in code_blocks(reply, "json", "") if block.is_closed]
    return [block for block in blocks if block.startswith("{") and block.endswith("}")]


def bare_objects(reply: str) -> list[str]:
    """Return the outermost stretches from a brace to the one that closes it. One that never closes ends the search."""
    found = []
    depth = begin = 0
    for brace in _BRACE.finditer(reply):
        if brace[0] == "{":
            begin = brace.start() if depth == 0 else begin
            depth += 1
        elif depth > 0:
            depth -= 1
            if depth == 0:
                found.append(reply[begin : brace.end()])
    return found


def _answer_of(text: str) -> str | None:
    if 'answer"' not in text and "\\" not in text:  # most stretches of a hostile reply
        return None
    try:
        parsed: Any = json.loads(text)
        return str(parsed["answer"]) if isinstance(parsed, dict) and "answer" in parsed else None
    except (ValueError, RecursionError):
        return None
