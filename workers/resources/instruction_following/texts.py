"""Cutting a text into tokens, sentences and pieces, in the ways the instructions were defined with."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gymq.errors import GymqError

# Stand for a dot that ends no sentence, and for an end without a dot. Unicode keeps these two for internal use.
_DOT = "\ufdd0"
_END = "\ufdd1"

_STARTERS = r"(?:Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|Wherever|(?:He|She|It|They|Their|Our|We|But|However|That|This)\s)"
_COMPANY = r" (?:Inc|Ltd|Jr|Sr|Co)"

_PUNKT = "tokenizers/punkt_tab/english"
_STOP_WORDS = "corpora/stopwords/english"


class ModelMissing(GymqError):
    """A model of NLTK that is not installed or that NLTK refuses to read. Nothing is known about the text."""


def prepare() -> None:
    """Load what cutting a text needs, before the first text, which says so if it is missing."""
    with suppress(ModelMissing):
        tokens("It is read once.")


def tokens(text: str) -> list[str]:
    """NLTK's word tokens; punctuation marks are tokens too.

    Raises:
        ModelMissing: the tokenizer's model cannot be read.
    """
    found: list[str] = _from_model(_nltk().word_tokenize, text)
    return found


def punkt_sentences(text: str) -> list[str]:
    """The sentences that NLTK's Punkt model for English finds.

    Raises:
        ModelMissing: the model cannot be read.
    """
    found: list[str] = _from_model(_nltk().sent_tokenize, text)
    return found


def sentences(text: str) -> list[str]:
    """The sentences by rules: cut after every `.`, `?` and `!`, apart from dots that the rules protect.

    A quotation mark after the end of a sentence comes before it in the result.
    """
    text = f" {text}  ".replace("\n", " ")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    for end, quotation_mark in (".”", '."', '!"', '?"'):
        text = text.replace(end + quotation_mark, quotation_mark + end)
    found = [part.replace(_DOT, ".").strip() for part in _CUT.split(text)]
    return found if found[-1] else found[:-1]


def first_tag(text: str) -> str:
    """Return the tag that NLTK's perceptron tagger gives the first token; it looks at the next two, no further.

    Raises:
        ModelMissing: the tagger is not installed: `python -m nltk.downloader averaged_perceptron_tagger_eng`.
        IndexError: there is no token.
    """
    tagged = _from_model(_nltk().pos_tag, tokens(text)[:3])
    tag: str = tagged[0][1]
    return tag


@functools.cache
def stop_words() -> frozenset[str]:
    """Return NLTK's stop words of English.

    Raises:
        ModelMissing: they cannot be read.
    """
    file = (nltk_data() or Path()) / _STOP_WORDS
    return frozenset(_from_model(file.read_text, "utf-8").split())


def pieces(text: str) -> list[str]:
    """What stands between the dividers `***`."""
    return re.split(r"\s?\*\*\*\s?", text)


def paragraphs(text: str) -> list[str]:
    """What stands between blank lines."""
    return text.split("\n\n")


def count_filled(parts: list[str]) -> int | None:
    """Return the number of parts without an empty first or last one; None if another one is empty."""
    inner = parts[1:-1]
    if not all(part.strip() for part in inner):
        return None
    return len(inner) + sum(bool(part.strip()) for part in parts[:1] + parts[1:][-1:])


def _protect(match: re.Match[str]) -> str:
    return match[0].replace(".", _DOT)


# In this order.
_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?:Mr|Mrs|Ms|Dr|St)\.", _protect),
        (r"\.(?:com|net|org|io|gov|edu|me)", _protect),
        (r"[0-9]\.[0-9]", _protect),
        (r"\.{2,}", lambda match: _protect(match) + _END),
        (r"Ph\.D\.", _protect),
        (r"\s([A-Za-z])\. ", rf" \1{_DOT} "),
        (rf"([A-Z]\.[A-Z]\.(?:[A-Z]\.)?) ({_STARTERS})", rf"\1{_END} \2"),
        (r"[A-Za-z]\.[A-Za-z]\.[A-Za-z]\.", _protect),
        (r"[A-Za-z]\.[A-Za-z]\.", _protect),
        (rf"({_COMPANY})\. ({_STARTERS})", rf"\1{_END} \2"),
        (rf"{_COMPANY}\.", _protect),
        (r" [A-Za-z]\.", _protect),
    )
)
_CUT = re.compile(rf"(?<=[.?!])|{_END}")


def _from_model(function: Callable[[Any], Any], argument: Any) -> Any:
    """Return what a function of NLTK returns that reads a model."""
    try:
        return function(argument)
    except (LookupError, OSError) as error:
        reason = next((line.strip(" *") for line in str(error).splitlines() if line.strip(" *")), "not found")
        raise ModelMissing(f"a model of NLTK cannot be read: {reason}") from None


@functools.cache
def _nltk() -> Any:
    """NLTK, with the models of this folder. It takes a while to import."""
    import nltk

    data = nltk_data()
    if data is not None and any(file.stat().st_nlink > 1 for file in (data / _PUNKT).iterdir()):
        _from_model(_read_a_copy, data)
    nltk.data.path.insert(0, str(data))
    return nltk


def _read_a_copy(data: Path) -> None:
    """Read the tokenizer's model, which NLTK then keeps. It refuses files with several links, which uv installs."""
    import nltk

    with tempfile.TemporaryDirectory(prefix="gymq-nltk-") as folder:
        shutil.copytree(data / _PUNKT, Path(folder) / _PUNKT)
        nltk.data.path.insert(0, folder)
        try:
            nltk.word_tokenize("It is read once.")
        finally:
            nltk.data.path.remove(folder)


def nltk_data() -> Path | None:
    """Where the model of the tokenizer is: a package from PyPI carries it, so nothing is downloaded when it is used."""
    package = importlib.util.find_spec("llama_index.core") if importlib.util.find_spec("llama_index") else None
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "_static" / "nltk_cache"
