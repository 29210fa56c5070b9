"""Numbers with their units, as short answers write them."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

_NUMBER = r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:e[+-]?\d{1,4})?|[+-]?\.\d+(?:e[+-]?\d{1,4})?"
_MEASURE = re.compile(rf"(?P<before>[$€£¥]?)\s*(?P<number>{_NUMBER})\s*(?P<unit>[^\d\s.,;][^\d;]{{0,30}}[23]?)?")
_ABBREVIATIONS = re.compile(r"\b(?:(m)|(k))ph\b")
_PER = re.compile(r" ?\bper\b ?")
_SQUARE = re.compile(r"\b(?:(?:square|sq\.?)|(cubic|cu\.?)) (?=[a-z])([a-z]+)")
_DEGREES = re.compile(r"\b(?:degrees?|deg) (?=[cf])")
_POWER = re.compile(r" ?\^ ?\{?([0-9-]+|\\circ)\}?")

_NAMES = json.loads(Path(__file__).with_name("units.json").read_text(encoding="utf-8"))  # of each unit
_UNITS = {name: unit for unit, names in _NAMES.items() for name in (unit, *names.split())}


class Measure(NamedTuple):
    """A number as it is written, and its unit; empty without one."""

    value: Decimal
    unit: str


def measure(text: str) -> Measure | None:
    """Return the number and the unit that a text in lower case is; None if it is something else."""
    found = _MEASURE.fullmatch(text.strip())
    if found is None:
        return None
    unit = _unit(found["unit"] or "")
    if unit is None or (found["before"] and unit):
        return None
    try:
        return Measure(Decimal(found["number"].replace(",", "")), unit or found["before"])
    except InvalidOperation:
        return None


def same_unit(given: str, wanted: str) -> bool:
    """Return whether two units agree; a missing one agrees with each."""
    return given == wanted or not given or not wanted


def is_rounded(given: Decimal, wanted: Decimal) -> bool:
    """Return whether one of two numbers is the other one, rounded to fewer places; a whole number has to be exact."""
    if given == wanted or wanted == wanted.to_integral_value() or given == given.to_integral_value():
        return given == wanted
    places = max(_exponent(given), _exponent(wanted))
    return abs(given - wanted) <= Decimal(1).scaleb(places) / 2 and min(map(_digits, (given, wanted))) > 1


def in_signs(text: str) -> str:
    """Return units with signs for words: `m/s` for `m per s`, `cm^2` for `square cm`."""
    text = _ABBREVIATIONS.sub(lambda found: "mi/h" if found[1] else "km/h", text)
    text = _SQUARE.sub(lambda found: f"{found[2]}^{3 if found[1] else 2}", _PER.sub("/", text))
    return _DEGREES.sub("", text)


def unit_of(name: str) -> str | None:
    """Return a unit in its one spelling; None if the name is none."""
    return _UNITS.get(name.lower())


def _unit(text: str) -> str | None:
    """Return the unit in its one spelling; None if the text is none. Products and powers stay as written."""
    text = _POWER.sub(r"^\1", in_signs(text.strip())).removeprefix("^")
    if not text:
        return ""
    parts = re.split(r"([\s*/^\u00b7-]+)", text)
    units = [part if at % 2 or part.isdigit() else _UNITS.get(part) for at, part in enumerate(parts)]
    known = [unit for unit in units if unit is not None]
    return "".join(known).replace(" ", "") if len(known) == len(units) else None


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0


def _digits(number: Decimal) -> int:
    return len(number.as_tuple().digits)
