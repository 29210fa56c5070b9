"""The two ways to decide whether a reply gives the expected answer: by what it says, and by math-verify alone."""

from __future__ import annotations

import math
import re
from typing import Any

from gymq.workers.resources.math_with_judge.equivalence import Equivalence, by_library, is_contradiction, targets
from gymq.workers.resources.math_with_judge.exact import same_number
from gymq.workers.resources.math_with_judge.notation import is_balanced, tidy, with_binomials
from gymq.workers.resources.math_with_judge.texts import CURRENCY, other_signs, same_text

from gymq.ext.text import boxes
from gymq.responses import conclusion

MOST_BITS = 1_000_000  # of a power that is calculated
DEEPEST = 6  # brackets that are open at once

_OPENS = r"[{ ]{0,2}(?:\\left)?[(]?"
_TOWER = re.compile(rf"(?<![\d.])(?:\d++|e)(?: ?\^ ?{_OPENS} ?-?(?:\d++|e))+")
_NUMBER = re.compile(r"\d+|e")
_BRACKET = re.compile(r"[()\[\]{}]")
_LONG = re.compile(
    r"\d{6}[)} ]?!|\d{4}[)} ]?!!|![)}]{1,3} ?!|\\[dt]?binom ?\{ ?\d{6}|\\(?:sum|prod)(?![a-z])[^$]{0,60}\^ ?\{? ?\d{5}"
    r"|(?:\\(?:log|ln|exp|sin|cos|tan) ?[({]{1,2}){4}|[a-z][^()]{0,40}\) ?\^ ?\{? ?\d{3}|\\(?:o|i{0,3})int(?![a-z])"
    r"|(?:\|[^|$\n]{0,30}+){9}|(?:=[^=$\n]{0,30}+){16}"
)

LONGEST_ANSWER = 200  # characters; or three times as many as the expected answer has, if that is more
LONGEST_PROSE = 1_000  # characters at the end of a reply without a box, which are read
MOST_PARTS = 15  # commands of LaTeX and members of lists; the same holds for them
_PART = re.compile(r"[\\,;]")
_DENIED = re.compile(r"(?:\bnot|n['\u2019]t) (?:equal to )?\$?-?\d[\d.,/]*+\$?")
_JOINS = re.compile(r"[\s$,;.]*(?:(?:and|or|,|;)[\s$]*)?")


def as_meant(expected_answer: str, reply: str) -> Equivalence:
    """Decide by the answer that the reply stands by, behind its thoughts; numbers are exact, texts are no products.

    math-verify reads formulas and compares those that are no numbers. Of a calculation that takes for ever
    and that the expected answer does not need, only the value counts that the answer says it has.
    """
    answer = last_answer(reply)
    if answer is None:
        return _from_prose(expected_answer, conclusion(reply)[-LONGEST_PROSE:])
    if _is_long(answer, expected_answer) or not is_balanced(answer):
        return Equivalence(0.0, answer[:LONGEST_ANSWER])
    wanted, given = tidy(expected_answer), tidy(answer)
    same = same_text(wanted, given)
    if same is not None:
        return Equivalence(float(same), given)
    if not end_of_huge(wanted) and (end := end_of_huge(given)):
        _, equals, value = given[end:].rpartition("=")
        if not equals:
            return Equivalence(0.0, given)
        given = value.strip()
    is_other = other_signs(wanted, given)
    wanted, given = wanted.removeprefix(CURRENCY), given.removeprefix(CURRENCY)
    if not (wanted.startswith("C(") and given.startswith("C(")):
        wanted, given = with_binomials(wanted), with_binomials(given)
    readings = _read(f"\\boxed{{{given}}}")
    shown = str(readings[0]) if readings else given
    return Equivalence(float(not is_other and _is_same(wanted, given, readings)), shown)


def _is_long(answer: str, expected_answer: str) -> bool:
    """Return whether an answer says so much more than the expected one that it is another; it takes long to read."""
    num_parts, num_expected = (len(_PART.findall(text)) for text in (answer, expected_answer))
    return len(answer) > max(LONGEST_ANSWER, 3 * len(expected_answer)) or num_parts > MOST_PARTS + 3 * num_expected


def _from_prose(expected_answer: str, end: str) -> Equivalence:
    wanted = tidy(expected_answer)
    if not end_of_huge(wanted):
        end = _DENIED.sub(" ", end[end_of_huge(end) :].replace("\u2212", "-"))
    found = by_library(wanted, end)
    if found.reward and is_contradiction(_read(end)):
        return Equivalence(0.0, found.extracted_answer)
    return found


def last_answer(reply: str) -> str | None:
    """Return what the last box says, with those right before it that it is listed with; None without a box."""
    said = conclusion(reply)
    found = [box for box in boxes(said) if box.text.strip()]
    if not found:
        return None
    texts = [found[-1].text]  # from the last one backwards
    for before, box in zip(found[-2::-1], found[:0:-1], strict=False):
        end = said.index("{", before.start) + len(before.text) + 2
        if not _JOINS.fullmatch(said, end, box.start) or "\n" in said[end : box.start]:
            break
        texts.append(before.text)
    return ", ".join(dict.fromkeys(reversed(texts)))


def _is_same(wanted: str, given: str, answer: list[Any]) -> bool:
    """Return whether two formulas are the same: as numbers, or else by math-verify.

    Args:
        answer: what the library reads in the given one.
    """
    from math_verify.grader import verify

    if wanted == given:
        return bool(wanted)
    expected = _read(f"\\boxed{{{wanted}}}")
    if is_contradiction(answer):
        return False
    for one in expected:
        for other in answer:
            same = _same(one, other)
            if same is not None:
                return same
    return bool(verify(expected, answer))


def _same(one: Any, other: Any) -> bool | None:
    """Return whether two readings are the same number, or the same list of numbers; None if they are something else."""
    from sympy import Tuple

    if isinstance(one, Tuple) and isinstance(other, Tuple) and len(one) == len(other):
        members = [same_number(*pair) for pair in zip(one, other, strict=True)]
        return None if None in members else all(members)
    return same_number(one, other)


def _read(text: str) -> list[Any]:
    from math_verify.parser import parse

    found: list[Any] = parse(text, targets())
    return found


def end_of_huge(text: str) -> int:
    """Return where the last formula ends that takes too long; 0 without one."""
    towers = [found.end() for found in _TOWER.finditer(text) if _bits(found[0]) > MOST_BITS]
    return max([_end_of_deep(text), *towers, *(found.end() for found in _LONG.finditer(text))])


def _end_of_deep(text: str) -> int:
    """Return where the last bracket is that lies too deep in others."""
    depth = end = 0
    for bracket in _BRACKET.finditer(text):
        depth = max(depth + (1 if bracket[0] in "([{" else -1), 0)
        end = bracket.end() if depth > DEEPEST else end
    return end


def _bits(tower: str) -> float:
    base, *exponents = [math.e if number == "e" else float(number) for number in _NUMBER.findall(tower)]
    power = 1.0
    for exponent in reversed(exponents):
        if power > 1 and power * math.log2(max(exponent, 1.0)) > MOST_BITS.bit_length():
            return math.inf
        power = exponent**power
    return power * math.log2(max(base, 1.0))
