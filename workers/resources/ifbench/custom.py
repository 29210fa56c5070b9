"""Rules with one task each, without arguments."""

from __future__ import annotations

import csv
import io
import re
import string
from collections.abc import Iterable, Iterator
from itertools import pairwise

from gymq.workers.resources.ifbench.texts import Rule, bare_words, plain, trimmed
from gymq.workers.resources.instruction_following.texts import sentences

MULTIPLES = ["14", "21", "28", "35", "42", "49"]
QUESTIONS = 4
CHOICES = 5
COUNTRIES = 52  # names from Zimbabwe on
_CAPITALS = """
Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw London
Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb
"""
CAPITALS = _CAPITALS.split()
CITY_HEADER = ["ID", "Country", "City", "Year", "Count"]
FIELDS = 5

# White space is matched possessively where nothing else can follow it.
_QUESTION = re.compile(r"Question \d++[.|):;]?+\s*+")
_CHOICE = re.compile(r"[A-Ea-e][.|)]\s*\w")
_BRANDS = re.compile(",[ \t]*".join(f'"?{name}"?' for name in ("ProductID", "Category", "Brand", "Price", "Stock")))
_GRADES = re.compile("\t *".join(f'"?{name}"?' for name in ("StudentID", "Subject", "Grade", "Semester", "Score")))
_SPECIAL = re.compile(r"[^\w\s]")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


def longer_questions(text: str) -> bool:
    """Four multiple-choice questions of five options, each longer than the one before."""
    if not text.startswith("Question"):
        return False
    *heads, last = _QUESTION.split(text)
    parts = [part for part in (*(head.rstrip("\n") for head in heads), last) if part]
    if len(parts) != QUESTIONS:
        return False
    lengths = []
    for part in parts:
        lines = [line.strip() for line in part.split("\n")]
        choices = [number for number, line in enumerate(lines) if _CHOICE.match(line)]
        if len(choices) != CHOICES:
            return False
        lengths.append(len(" ".join(lines[: choices[0]])))
    return all(first < second for first, second in pairwise(lengths))


def countries_backwards(text: str) -> bool:
    """A country in every line, from Zimbabwe backwards."""
    lines = [line for line in (trimmed(line) for line in text.split("\n")) if line]
    start = next(number for number, line in enumerate(lines) if "Zimbabwe" in line)
    names = [plain(line) for line in lines[start:]]
    return len(names) >= COUNTRIES and all(first >= second for first, second in pairwise(names))


def initials_from_a_to_z(found: Iterable[str]) -> bool:
    """Return whether texts begin with the letters of the alphabet in their order."""
    return [text[:1].lower() for text in found] == list(string.ascii_lowercase)


def csv_of_cities(text: str) -> bool:
    """A CSV with a header and seven rows."""
    rows = list(csv.reader(io.StringIO(text)))
    return len(rows) == 8 and rows[0] == CITY_HEADER and all(len(row) == FIELDS for row in rows)


def csv_with_special_character(text: str) -> bool:
    """A CSV of products, one of which has a quoted field with a special character."""
    if not _BRANDS.fullmatch(text.split("\n")[0].strip()):
        return False
    rows = list(_quoted_rows(text, ","))
    if len(rows) != 15:
        return False
    for row in rows:
        if len(row) != FIELDS:
            return False
        if any(map(_has_special_character, row)):
            return True
    return False


def csv_in_quotes(text: str) -> bool:
    """A CSV of grades, separated by tabs, with every field in quotes."""
    if not _GRADES.fullmatch(text.split("\n")[0].strip()):
        return False
    rows = list(_quoted_rows(text, "\t"))
    if len(rows) != 4 or any(len(row) != FIELDS for row in rows):
        return False
    fields = [field.strip() for row in rows for field in row]
    return all(field.startswith('"') and field.endswith('"') for field in fields)


def _has_special_character(field: str) -> bool:
    """Return whether a field begins with a quotation mark, and has another one behind a special character."""
    end = field.rfind('"')
    return field.startswith('"') and _SPECIAL.search(field, 1, max(end, 1)) is not None


def _is_date(text: str) -> bool:
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}.get(month, 31)
    return 1769 <= year <= 1821 and month <= 12 and day <= longest


def _quoted_rows(text: str, separator: str) -> Iterator[list[str]]:
    """Yield the rows of a CSV; of a field's quotation marks one stays on each side."""
    return csv.reader(io.StringIO(text.replace('"', '"""')), delimiter=separator)


RULES: dict[str, Rule] = {
    # The letters of a bald eagle in reverse order.
    "custom:character_reverse": lambda text: "elgae dlab" in text.lower(),
    "custom:csv_city": csv_of_cities,
    "custom:csv_quotes": csv_in_quotes,
    "custom:csv_special_character": csv_with_special_character,
    # Dates in the life of Napoleon, between commas.
    "custom:date_format_list": lambda text: all(_is_date(part.strip()) for part in text.split(",")),
    # The capitals from north to south.
    "custom:european_capitals_sort": lambda text: (
        [name.strip() for name in plain(text).split(",") if name.strip()] == CAPITALS
    ),
    "custom:mcq_count_length": longer_questions,
    # The numbers are the multiples of seven from 14 to 49.
    "custom:multiples": lambda text: re.findall(r"\d+", text) == MULTIPLES,
    "custom:reverse_newline": countries_backwards,
    # Twenty-six sentences, each with the next initial.
    "custom:sentence_alphabet": lambda text: initials_from_a_to_z(sentences(text)),
    # The words in reverse order speak of a bald eagle.
    "custom:word_reverse": lambda text: "bald eagle" in " ".join(reversed(bare_words(text))),
}
