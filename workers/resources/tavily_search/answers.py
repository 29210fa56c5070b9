"""The reply's answer, and what the judge says about it."""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping
from typing import Any

from gymq.judge import Labels, PromptTemplate
from gymq.responses import content_texts, is_message

ANSWER = re.compile("answer:", re.IGNORECASE)
CONFIDENCE = re.compile("confidence:", re.IGNORECASE)
WORD = re.compile(r"\S")
LINE_END = re.compile("\n")
VERDICTS = Labels({"yes": "correct: yes", "no": "correct: no"})

JUDGE_PROMPT = PromptTemplate(
    """\
Decide whether a reply answers a question correctly. Only the reference counts: do not solve the question yourself, and
do not argue for another answer.

Question: {question}

Reply:
<reply>
{reply}
</reply>

Reference: {reference}

Write these four lines.
extracted_final_answer: the final answer of the reply, or None if it gives none
reasoning: whether that answer means the same as the reference, small differences of numbers and spelling aside
correct: yes if it does, otherwise no
confidence: how sure the reply is, from 0 to 100; 100 if it does not say
""",
    *("question", "reply", "reference"),
)


def reply_text(response: Mapping[str, Any]) -> str:
    """Return the first text of the last message that has one."""
    for item in reversed(response["output"]):
        for text in content_texts(item.get("content")) if is_message(item) else ():
            return text
    return ""


def judge_text(response: dict[str, Any]) -> str:
    """Return the last text of the last output item; empty if that has none."""
    output = response["output"]
    content = output[-1].get("content") if output and is_message(output[-1]) else None
    last_part = content[-1:] if isinstance(content, list) else content
    return next(content_texts(last_part), "")


def answer_line(text: str) -> str:
    """Return the line between the last pair of `Answer:` and `Confidence:`; empty without one.

    White space may stand before and after the line. Of several `Confidence:` on it the last one belongs to the pair.
    """
    ends = [label.start() for label in CONFIDENCE.finditer(text)]
    found, line_end, after, taken = "", -1, 0, 0
    for label in ANSWER.finditer(text):
        if label.start() < taken:
            continue
        begin = _find(WORD, text, label.end())
        if begin > line_end:  # otherwise it is on the line of the label before
            line_end = _find(LINE_END, text, begin)
            after = _find(WORD, text, line_end)
        position = bisect.bisect_right(ends, after) - 1
        if position >= 0 and ends[position] >= begin:
            taken = ends[position]
            found = text[begin : min(taken, line_end)].strip()
    return found


def _find(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Return where the pattern begins, from `start` on; the end of the text if it is not there."""
    match = pattern.search(text, start)
    return match.start() if match else len(text)
