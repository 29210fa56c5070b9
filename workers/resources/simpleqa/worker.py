"""simpleqa: short questions of fact. A judge model says whether the answer is correct, incorrect or not attempted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymq.workers.resources.simpleqa.prompt_files import read_prompt

import gymq
from gymq import responses
from gymq.judge import Judge, JudgedEnvironment, JudgeOptions, Labels, Question, chosen_template
from gymq.judge.reading import is_denied
from gymq.responses import conclusion

VERDICTS = {"A": "correct", "B": "incorrect", "C": "not_attempted"}

_LETTER_FIRST = re.compile(r"[ABC](?!\w)")
_LETTER = re.compile(r"(?<!\w)[ABC](?!\w)")
_WORD = re.compile(r"(?<!\w)(?:NOT[_ ]ATTEMPTED|INCORRECT|CORRECT)(?!\w)")
_ALONE = re.compile(r"\W*([ABC])\W*")
_LABELLED = re.compile(r"\W*([ABC])\W*(?:[:)]|NOT[_ ]ATTEMPTED|INCORRECT|CORRECT)")
_AT_THE_END = re.compile(r"(?<![\w/])(?<!\bor )(?<!\band )([ABC])\W*\Z")
_GRADE = re.compile(r"(?<!\w)(?:[ABC]|NOT[_ ]ATTEMPTED|INCORRECT|CORRECT)(?!\w)")
_ARTICLE = re.compile(r"(?<!\w)A(?= [a-z])")
_LETTER_OF_WORD = {"CORRECT": "A", "INCORRECT": "B", "NOT_ATTEMPTED": "C", "NOT ATTEMPTED": "C"}

HERE = Path(__file__).parent
FIELDS = ("question", "expected_answer", "generation")

# Parameters of a judge that is asked in the chat form, where the configuration has none.
CHAT_PARAMS: dict[str, Any] = {"max_output_tokens": 64, "temperature": 0.0, "top_p": 1.0}


class FactRow(gymq.Row):
    question: str | None = None
    expected_answer: str | None = None
    id: int | str | None = None


class FactOptions(JudgeOptions):
    judge_prompt_template: str | None = None
    judge_prompt_path: str | None = None
    use_chat_completions_for_judge: bool = False


class SimpleQa(JudgedEnvironment[FactRow]):
    """Reward 1 if a judge finds the answer correct, not if it finds it incorrect or not attempted."""

    Options = FactOptions
    reward_range = (0.0, 1.0)

    async def start(self) -> None:
        options = self.options
        text, file, system = options.judge_prompt_template, options.judge_prompt_path, options.judge_system_message
        if text is None:
            prompt = read_prompt(self.name, file or str(HERE / "prompt.yaml"), HERE)
            text, system = prompt.user, system or prompt.system
        elif file is not None:
            raise gymq.OptionsError(f"{self.name}: give the judge's prompt as text or as a file, not both")
        template = chosen_template(self.name, text, None, "", *FIELDS)
        self._question = Question(template, Labels.exactly(*VERDICTS), options.hardened)
        self._grade_in = hardened_grade_in if options.hardened else grade_in
        self.judge = Judge(
            self,
            options.judge_model_server.name,
            (CHAT_PARAMS if options.use_chat_completions_for_judge else {}) | options.judge_responses_create_params,
            system_message=system,
            max_concurrency=options.judge_endpoint_max_concurrency,
        )

    async def verify(self, request: gymq.VerifyRequest[FactRow]) -> gymq.Verdict:
        row = request.row
        expected = row.expected_answer or ""
        answer = answer_text(request.response)
        prompt = self._question.template.fill(
            question=row.question or "",
            expected_answer=expected,
            generation=self._question.material(answer),
        )
        judgement = await self.judge.ask(prompt, answer_text)
        if not judgement.label:
            raise gymq.JudgeFailed(f"the reply of {self.options.judge_model_server.name} has no text")
        verdict = VERDICTS[self._grade_in(judgement.label)]
        return gymq.Verdict(
            float(verdict == "correct"),
            extracted_answer=answer,
            expected_answer=expected,
            verdict=verdict,
            judge_output=judgement.label,
            **{f"is_{one}": float(verdict == one) for one in VERDICTS.values()},
        )


def answer_text(response: Mapping[str, Any]) -> str:
    """Return the text parts of the last assistant message that has one, joined with newlines, trimmed; or nothing."""
    for item in reversed(response["output"]):
        if responses.is_message(item) and item.get("role") == "assistant":
            texts = list(responses.content_texts(item.get("content")))
            if texts:
                return "\n".join(texts).strip()
    return ""


def grade_in(text: str) -> str:
    """Return the grade A, B or C in a judge's trimmed text; C if there is none.

    A letter counts first at the beginning, then at the beginning of the last line, then anywhere: an A before a B
    before a C. Without any letter the words count, if all are for the same grade.
    """
    for line in (text, text.split("\n")[-1].strip()):
        if _LETTER_FIRST.match(line):
            return line[0]
    letters = _LETTER.findall(text)
    return str(min(letters)) if letters else _grade_by_words(text) or "C"


def hardened_grade_in(text: str) -> str:
    """Return the grade A, B or C that a judge's text concludes with; C if there is none, or several.

    A letter counts that is the last line or the first, or stands before its grade at the beginning, or at the end. Then
    the words count, and at last any letter, if all are for the same grade. The article "A" does not count, nor what the
    judge denies or asks for.
    """
    text = _GRADE.sub(_unless_denied, conclusion(text))
    lines = [line for line in text.split("\n") if line.strip()] or [""]
    found = (
        _ALONE.fullmatch(lines[-1]),
        _ALONE.fullmatch(lines[0]),
        _LABELLED.match(lines[0]),
        _AT_THE_END.search(lines[-1]),
    )
    letter = next((match[1] for match in found if match is not None), None)
    letters = set(_LETTER.findall(_ARTICLE.sub("", text)))
    return letter or _grade_by_words(text) or (letters.pop() if len(letters) == 1 else "C")


def _unless_denied(found: re.Match[str]) -> str:
    return "-" if is_denied(found.string, found.start(), found.end()) else found[0]


def _grade_by_words(text: str) -> str | None:
    """Return the grade that the words stand for; None without any, or if they stand for several."""
    meant = {_LETTER_OF_WORD[word] for word in _WORD.findall(text)}
    return meant.pop() if len(meant) == 1 else None
