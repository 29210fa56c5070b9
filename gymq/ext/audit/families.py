"""Families of answers made from gold replies: right ones in another dress, and wrong ones that are near."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gymq.data.solutions import Action, ActionCall
from gymq.ext.audit.gold import GoldRow
from gymq.ext.text import answer_lines, boxes, undressed

_JSON_ANSWER = re.compile(r'"answer": ?"([^"\\]+)"')
_PROGRAM, _QUERY, _FENCE = "```python\n", "```sql\n", "```"
_LETTER, _NUMBER, _WORD = re.compile("[A-J]"), re.compile(r"-?\d+"), re.compile("[A-Za-z]+")

# A row gets the first as its expected answer. The second is near, and another one.
_OTHERS = (
    ("small numbers", r"2^{-99}", r"2^{-98}"),
    ("small numbers", r"6.63 \times 10^{-34}", r"1.05 \times 10^{-34}"),
    ("exact numbers", r"10^{20}", r"\sqrt{10^{40}+1}"),
    ("permuted letters", "BAC", "ABC"),
    ("permuted letters", "listen", "silent"),
    ("dates", "2023-10-05", "2023-05-10"),
    ("scores", "3-1", "4-2"),
    ("times", "4:20", "8:40"),
    ("another unit", r"7 \text{ km}", r"7 \text{ m}"),
    ("another unit", r"6 \text{ AM}", r"6 \text{ PM}"),
    ("upright letters", r"7\mathrm{e}^2", r"7\mathrm{e}^3"),
    ("another year", "1852", "1851"),
    ("a longer word", "India", "Indiana"),
    ("a longer number", "12", "112"),
)

# The same, for verifiers that calculate: those that take a fraction for a decimal.
_CALCULATES = ("0.5", r"\frac{1}{2}")
_EQUAL = (
    ("plain notation", "pi/2", r"\frac{\pi}{2}"),
    ("plain notation", "x**2+1", "x^2+1"),
    ("plain notation", "sin(x)/2", r"\frac{\sin x}{2}"),
    ("Unicode signs", r"2\sqrt{3}", "2\u221a3"),
    ("Unicode signs", "x^2", "x\u00b2"),
    ("repeating decimals", r"\frac{1}{3}", r"0.\overline{3}"),
    ("upright letters", "7e^2", r"7\mathrm{e}^2"),
    ("exact numbers", r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt{2}"),
    ("large brackets", "(1,2)", r"\bigl(1,2\bigr)"),
    ("a full stop", "42", "42."),
)


class Variant(NamedTuple):
    """A reply to a row of its own, and whether it is right.

    Attributes:
        needs: rows with replies that have to be rewarded, or the verifier does not take such answers at all.
    """

    label: str
    is_right: bool
    row: dict[str, Any]
    reply: list[Action]
    needs: tuple[tuple[dict[str, Any], list[Action]], ...] = ()


class _Marked(NamedTuple):
    """A reply and where in it the answer is, in a box, an answer line or a field of JSON."""

    reply: str
    start: int
    end: int
    kind: str

    @property
    def answer(self) -> str:
        return self.reply[self.start : self.end]

    def with_answer(self, answer: str) -> str:
        return self.reply[: self.start] + answer + self.reply[self.end :]

    def mark(self, answer: str) -> str:
        """Return an answer in the marks of this one, without the rest of the reply."""
        if self.kind == "box":
            return f"\\boxed{{{answer}}}"
        return f"Answer: {answer}\n" if self.kind == "line" else f'{{"answer": "{answer}"}}\n'


def variants(rows: Iterable[GoldRow], *, runs_calls: bool) -> Iterator[tuple[GoldRow, Variant]]:
    """Yield the families of gold replies, those with other expected answers for one row only.

    Args:
        runs_calls: whether calls of tools are executed.
    """
    tries_others = True
    for gold in rows:
        actions = gold.gold.actions
        if len(actions) == 1 and actions[0].text is not None:
            yield from ((gold, variant) for variant in _of_text(gold, actions[0].text))
            marked = _marked(actions[0].text)
            path = None if marked is None or not tries_others else _path_of(gold.row, marked.answer)
            if marked is not None and path is not None:
                tries_others = False
                yield from ((gold, variant) for variant in _of_other_answers(gold, marked, path))
        elif not runs_calls and all(action.call is not None for action in actions):
            said = [_with_argument(action) for action in actions]
            yield gold, Variant("an undeclared argument", False, gold.row, said)


def is_taken(reward: float | None, gold: GoldRow) -> bool:
    """Return whether a verifier takes an answer for right. A near one may earn a part of the reward, less than 90 %."""
    return reward is not None and reward >= 0.9 * gold.reward


def _of_text(gold: GoldRow, reply: str) -> Iterator[Variant]:
    if _PROGRAM in reply and ("input(" in reply or "class Solution" in reply):
        yield _right("long numbers", gold, reply.replace(_PROGRAM, f"{_PROGRAM}len(str(10 ** 5000))\n", 1))
    query = reply.partition(_QUERY)[2].partition(_FENCE)[0].strip().rstrip(";")
    if query.upper().startswith("SELECT"):
        yield _right("a comment in front", gold, f"{_QUERY}-- The rows that count.\n{query}\n{_FENCE}")
        yield _right("dashes in a text", gold, f"{_QUERY}SELECT * FROM ({query}) WHERE '-- a' = '-- a'\n{_FENCE}")
    if (marked := _marked(reply)) is not None:
        yield from _of_answer(gold, marked)


def _of_answer(gold: GoldRow, marked: _Marked) -> Iterator[Variant]:
    answer = marked.answer
    for label, text in _dressed(marked):
        yield _right(label, gold, marked.with_answer(text))
    other = _near(answer)
    if other is None:
        return
    wrong = marked.with_answer(other)
    first = f"At first I had {marked.mark(other)}, but that is wrong."
    yield _right("a taken-back answer", gold, f"{first}\n\n{marked.reply}")
    yield _right("thoughts", gold, f"<think>\nIs it {marked.mark(other)}?\n</think>\n\n{marked.reply}")
    yield _wrong("another answer", gold, wrong)
    yield _wrong("the answer taken back", gold, f"{marked.reply}\n\nNo, that is wrong.\n\n{wrong}")
    yield _wrong("the answer in thoughts", gold, f"<think>\n{marked.reply}\n</think>\n\n{wrong}")
    if marked.kind == "line":
        yield _right("a boxed formula", gold, f"We use \\boxed{{E = m c^2}}.\n\n{marked.reply}")
    if _LETTER.fullmatch(answer):
        yield _wrong("several answers", gold, marked.with_answer(f"{answer}) {other})"))
        yield _wrong("several answers", gold, marked.with_answer(f"{answer}, {other}"))
        if answer == "A":
            yield _wrong("an article", gold, marked.with_answer("a formula"))
    elif _NUMBER.fullmatch(answer):
        yield _wrong("several answers", gold, marked.with_answer(f"{answer} or {other}"))


def _dressed(marked: _Marked) -> Iterator[tuple[str, str]]:
    answer = marked.answer
    if marked.kind == "json" or not re.fullmatch(r"[\w ]+", answer):
        return
    if marked.kind == "box":
        for font in ("text", "textbf", "mathbf", "mathrm"):
            yield f"\\{font}", f"\\{font}{{{answer}}}"
    else:
        yield "Markdown", f"**{answer}**"
        yield "a formula", f"${answer}$"
        yield "quotes", f"\u201c{answer}\u201d"
        if _LETTER.fullmatch(answer):
            yield "brackets", f"({answer})"
    yield "a full stop", f"{answer}."


def _of_other_answers(gold: GoldRow, marked: _Marked, path: tuple[Any, ...]) -> Iterator[Variant]:
    def of(kind: str, expected: str, answer: str, *, is_right: bool) -> Variant:
        row = _replaced(gold.row, path, expected)
        needs = [(row, [Action(text=marked.with_answer(expected))])]
        if is_right:
            one, same = _CALCULATES
            needs.append((_replaced(gold.row, path, one), [Action(text=marked.with_answer(same))]))
        reply = [Action(text=marked.with_answer(answer))]
        return Variant(f"{kind}, {answer} for {expected}", is_right, row, reply, tuple(needs))

    for kind, expected, answer in _OTHERS:
        if marked.kind != "json" or "\\" not in expected + answer:
            yield of(kind, expected, answer, is_right=False)
    if marked.kind != "json":
        for kind, expected, answer in _EQUAL:
            yield of(kind, expected, answer, is_right=True)


def _right(label: str, gold: GoldRow, reply: str) -> Variant:
    return Variant(label, True, gold.row, [Action(text=reply)])


def _wrong(label: str, gold: GoldRow, reply: str) -> Variant:
    return Variant(label, False, gold.row, [Action(text=reply)])


def _marked(reply: str) -> _Marked | None:
    if found := boxes(reply):
        start, kind = reply.index("{", found[-1].start) + 1, "box"
        text = found[-1].text
    elif found := answer_lines(reply):
        text, kind = found[-1].text.strip(" .*"), "line"
        start = reply.rindex(text)
    elif json_answer := _JSON_ANSWER.search(reply):
        text, kind, start = json_answer[1], "json", json_answer.start(1)
    else:
        return None
    return _Marked(reply, start, start + len(text), kind) if text else None


def _near(answer: str) -> str | None:
    """Return an answer that is another one: other digits, another letter, letters in another order."""
    plain = undressed(answer)
    if _LETTER.fullmatch(plain):
        return "B" if plain == "A" else "A"
    if any(character.isdigit() for character in answer):
        return re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), answer)
    if _WORD.fullmatch(answer) and answer[::-1].lower() != answer.lower():
        return answer[::-1]
    return None


def _path_of(value: Any, answer: str, path: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
    """Return where a row has the answer; None if it has it nowhere outside of the prompt."""
    if isinstance(value, str):
        return path if undressed(value).casefold() == undressed(answer).casefold() else None
    if isinstance(value, dict):
        members = [(name, one) for name, one in value.items() if name != "responses_create_params"]
    else:
        members = list(enumerate(value)) if isinstance(value, list) else []
    found = (_path_of(one, answer, (*path, name)) for name, one in members)
    return next((one for one in found if one is not None), None)


def _replaced(row: dict[str, Any], path: tuple[Any, ...], answer: str) -> dict[str, Any]:
    row = copy.deepcopy(row)
    *parents, last = path
    holder: Any = row
    for name in parents:
        holder = holder[name]
    holder[last] = answer
    return row


def _with_argument(action: Action) -> Action:
    assert action.call is not None
    arguments = action.call.arguments
    declared = arguments if isinstance(arguments, dict) else {}
    return Action(call=ActionCall(action.call.name, {**declared, "undeclared": 1}))
