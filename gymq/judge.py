"""Judging: a model is asked about a reply, and its verdict is read from its answer.

A judge that cannot be asked raises `JudgeFailed`. Any answer is an outcome, even one without a readable verdict; its
worth is for each verifier to decide.
"""

from __future__ import annotations

import asyncio
import re
import string
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import pydantic

from gymq import responses
from gymq.authoring import OptionsError, Reference, WorkerOptions
from gymq.resources import Resources
from gymq.resources.judge_calls import recorded_calls

DEFAULT_CONCURRENCY = 64

Label = Annotated[str, pydantic.StringConstraints(min_length=1)]


def _check_params(params: dict[str, Any]) -> dict[str, Any]:
    return responses.validate_params({"input": [], **params})


JudgeParams = Annotated[dict[str, Any], pydantic.AfterValidator(_check_params)]
"""Parameters of a Responses request, without or with an `input`, which is replaced."""


class JudgeOptions(WorkerOptions):
    """Options of a verifier that asks a judge."""

    judge_model_server: Reference
    judge_responses_create_params: JudgeParams = pydantic.Field({"input": []}, validate_default=True)
    judge_system_message: str | None = None
    judge_endpoint_max_concurrency: pydantic.PositiveInt | None = DEFAULT_CONCURRENCY  # in one process; None: no bound
    hardened: bool = True  # see `Labels`; False: read a verdict as NeMo Gym does


def check_distinct(*labels: str) -> None:
    """Check that no two labels are the same, because one of the verdicts could then never be given.

    Raises:
        ValueError: two labels are the same.
    """
    if len(set(labels)) < len(labels):
        raise ValueError(f"the labels {', '.join(map(repr, labels))} must differ")


class EqualityOptions(JudgeOptions):
    """Options of a verifier whose judge says whether two texts mean the same, and may be asked in both orders."""

    judge_equal_label: Label = "[[A=B]]"
    judge_not_equal_label: Label = "[[A!=B]]"
    check_twice_swap: bool = False
    reward_if_swap_fails: pydantic.FiniteFloat = 0.0

    @pydantic.model_validator(mode="after")
    def _check_labels(self) -> Self:
        check_distinct(self.judge_equal_label, self.judge_not_equal_label)
        return self


# Asking ---------------------------------------------------------------------------------------------------------------


class PromptTemplate:
    """A text with named placeholders such as `{question}`. Doubled braces stand for single ones.

    Only the template is searched for placeholders: what is filled in may hold any braces.
    """

    def __init__(self, text: str, *fields: str) -> None:
        """Parse the text of a template.

        Args:
            text: the template.
            fields: the placeholders that may occur.

        Raises:
            ValueError: there is another placeholder, or an unmatched brace.
        """
        known = ", ".join(f"{{{field}}}" for field in fields)
        try:
            parsed = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"the template has a mistake in its braces: {error}; placeholders are {known}") from None
        for _, name, form, conversion in parsed:
            if name is not None and (name not in fields or form or conversion):
                raise ValueError(f"the template has the placeholder {{{name}}}; known are {known}, as they stand")
        self._text = text
        tags = sorted(set(re.findall(r"</?[A-Za-z]\w*>", text)))
        self.tags = re.compile("|".join(map(re.escape, tags)), re.IGNORECASE) if tags else None

    def fill(self, **values: str) -> str:
        """Return the text with the values filled in."""
        return self._text.format(**values)


def literal(text: str) -> str:
    """Escape a text for use in a template: double its braces."""
    return text.replace("{", "{{").replace("}", "}}")


def chosen_template(worker: str, inline: str | None, file: str | None, default: str, *fields: str) -> PromptTemplate:
    """Return the template given as text, or else the one in a file, or else the default.

    Raises:
        OptionsError: both are given, the file cannot be read, or the template does not fit.
    """
    if inline is not None and file is not None:
        raise OptionsError(f"{worker}: give the judge's prompt template as text or as a file, not both")
    try:
        text = Path(file).read_text(encoding="utf-8") if file is not None else default if inline is None else inline
        return PromptTemplate(text, *fields)
    except (OSError, ValueError) as error:
        where = "judge_prompt_template" if file is None else f"judge_prompt_template_fpath {file}"
        raise OptionsError(f"{worker}: {where}: {error}") from None


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
        max_concurrency: int | None = DEFAULT_CONCURRENCY,
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


# Reading --------------------------------------------------------------------------------------------------------------


def last_text(response: Mapping[str, Any]) -> str:
    """Return the text of the last content part of the last item; empty if it is not a message or not a text."""
    if not response["output"] or not responses.is_message(response["output"][-1]):
        return ""
    content = response["output"][-1]["content"]
    if isinstance(content, str):
        return content
    return (content[-1].get("text") or "") if content else ""


def last_label(text: str, *labels: str) -> str | None:
    """Return the label that ends last in a text, the longer of two at the same place; None if there is none."""
    found = [(text.rindex(label) + len(label), len(label), label) for label in labels if label in text]
    return max(found)[2] if found else None


class Labels:
    """The verdicts that a judge can give, and how one is read although the text under test may hold them all.

    The last label counts that stands neither in thoughts nor in a quotation, since a judge reasons first and decides
    last. The text under test is shown to the judge with each label in it broken up, so that a judge who repeats it
    gives no verdict.
    """

    def __init__(self, forms: Mapping[str, str], *, ignore_case: bool = False) -> None:
        """Compile the patterns of the labels.

        Args:
            forms: for each verdict the pattern of the label that gives it.
        """
        self._verdicts = sorted(forms, key=lambda verdict: -len(forms[verdict]))
        pattern = "|".join(f"({forms[verdict]})" for verdict in self._verdicts)
        self._pattern = re.compile(pattern, re.IGNORECASE if ignore_case else 0)

    @classmethod
    def exactly(cls, *labels: str) -> Labels:
        """Return the labels that stand for themselves, in this case."""
        return cls({label: re.escape(label) for label in labels})

    def first(self, text: str) -> str | None:
        """Return the verdict that begins first in a text, quoted or not, as NeMo Gym reads it."""
        found = self._pattern.search(text)
        return None if found is None else self._verdict(found)

    def read(self, text: str) -> str | None:
        """Return the last verdict outside of thoughts and quotations, or else the one that is the whole last line."""
        text = conclusion(text)
        quoted = _quoted(text)
        verdict = None
        for found in self._pattern.finditer(text):
            around = text[max(found.start() - 1, 0) : found.start()] + text[found.end() : found.end() + 1]
            if not quoted[found.start()] and around != "''":
                verdict = self._verdict(found)
        return verdict if verdict is not None else self._alone(text)

    def material(self, text: str, template: PromptTemplate) -> str:
        """Return a text under test for its place in a template: none of its labels and of the template's tags is whole.

        Labels that are plain words, such as `yes`, stay as they are.
        """
        text = self._pattern.sub(lambda found: found[0] if found[0].isalnum() else _broken(found[0]), text)
        return text if template.tags is None else template.tags.sub(lambda found: _broken(found[0]), text)

    def _alone(self, text: str) -> str | None:
        lines = [line.strip(_DECORATION) for line in text.splitlines()]
        found = self._pattern.fullmatch(next((line for line in reversed(lines) if line), ""))
        return None if found is None else self._verdict(found)

    def _verdict(self, found: re.Match[str]) -> str:
        assert found.lastindex is not None  # each alternative is a group
        return self._verdicts[found.lastindex - 1]


@dataclass(frozen=True)
class Question:
    """A question to a judge about a text: how the text is shown, and how the verdict is read.

    Attributes:
        hardened: shown and read as `Labels` describes; otherwise the text is shown as it is, and the label counts that
            the judge writes first.
    """

    template: PromptTemplate
    labels: Labels
    hardened: bool

    def material(self, text: str) -> str:
        """Return the text under test for its place in the template."""
        return self.labels.material(text, self.template) if self.hardened else text

    def label_in(self, text: str) -> str | None:
        """Return the verdict in a judge's text; None if there is none."""
        return self.labels.read(text) if self.hardened else self.labels.first(text)

    def read(self, response: dict[str, Any]) -> str | None:
        """Return the verdict in the last text of a judge's response; None if there is none."""
        return self.label_in(last_text(response))


class EqualityTemplateOptions(EqualityOptions):
    """Options of such a verifier whose prompt can be replaced."""

    judge_prompt_template: str | None = None
    judge_prompt_template_fpath: str | None = None

    def question(self, worker: str, default: str, *fields: str) -> Question:
        """Return the question with the configured prompt, or else the default.

        Args:
            worker: the instance's name, for errors.
            default: a template of the template, with `{equal}` and `{different}` where it asks for the labels.

        Raises:
            OptionsError: as from `chosen_template`.
        """
        equal, different = self.judge_equal_label, self.judge_not_equal_label
        text = default.format(equal=literal(equal), different=literal(different))
        inline, file = self.judge_prompt_template, self.judge_prompt_template_fpath
        template = chosen_template(worker, inline, file, text, *fields)
        return Question(template, Labels.exactly(equal, different), self.hardened)


_QUOTES = {'"': '"', "`": "`", "\u201c": "\u201d", "\u00ab": "\u00bb"}
_DECORATION = " \t*_`'\".\u201c\u201d\u00ab\u00bb"


def _broken(text: str) -> str:
    return f"{text[0]} {text[1:]}"


def _quoted(text: str) -> bytearray:
    """Return for each character whether it stands in a fenced block, a quoted line, or quotation marks on one line.

    A fence that nothing closes begins no block: a reply that is quoted in part may have brought it.
    """
    marks = bytearray(len(text))
    lines = text.splitlines(keepends=True)
    fences = [number for number, line in enumerate(lines) if _is_fence(line)]
    fences = fences[: len(fences) - len(fences) % 2]
    blocks = zip(fences[::2], fences[1::2], strict=True)
    fenced = {number for begin, end in blocks for number in range(begin, end + 1)}
    start = 0
    for number, line in enumerate(lines):
        if number in fenced or line.lstrip().startswith(">"):
            marks[start : start + len(line)] = b"\1" * len(line)
        else:
            for begin, end in _quotations(line):
                marks[start + begin : start + end] = b"\1" * (end - begin)
        start += len(line)
    return marks


def _is_fence(line: str) -> bool:
    """Return whether a line begins or ends a fenced block. One with further backticks is code within its line."""
    beginning = line.lstrip()
    return beginning.startswith("```") and "`" not in beginning.lstrip("`")


def _quotations(line: str) -> Iterable[tuple[int, int]]:
    closing, begin = None, 0
    for position, character in enumerate(line):
        if closing is None and character in _QUOTES:
            closing, begin = _QUOTES[character], position
        elif character == closing:
            yield begin, position
            closing = None


def conclusion(text: str) -> str:
    """Return what follows the thoughts of a text; nothing if it ends within them, as one that was cut off does."""
    _, end, after = text.rpartition("</think>")
    return after if end or not text.lstrip().startswith("<think>") else ""


def thoughts(text: str) -> str | None:
    """Return the content of the first `<think>...</think>` of a text, trimmed; None if there is none."""
    begin, end = "<think>", "</think>"
    start = text.find(begin)
    stop = text.find(end, start)
    return None if start < 0 or stop < 0 else text[start + len(begin) : stop].strip()
