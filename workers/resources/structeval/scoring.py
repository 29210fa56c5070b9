"""The scores of a reply. Runs in processes that can be killed: a text can keep a parser busy for long."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

from gymq.workers.resources.structeval.paths import has_path
from gymq.workers.resources.structured_outputs.formats import Format, parse

_BEGIN = re.compile(r"<\|BEGIN_CODE\|>", re.IGNORECASE)
_END = re.compile(r"<\|END_CODE\|>", re.IGNORECASE)
_FENCE = "```"
_EMPTY_THOUGHTS = "<think>\n\n</think>\n\n"

FORMATS: tuple[Format, ...] = get_args(Format)
MAX_MESSAGE_CHARACTERS = 200


class Scores(NamedTuple):
    """What a reply is worth, and the error if it cannot be parsed."""

    render_score: float = 0.0
    key_validation_score: float = 0.0
    raw_output_score: float = 0.0
    error_type: str | None = None
    error_message: str | None = None

    @property
    def reward(self) -> float:
        return round(0.2 * self.render_score + 0.8 * self.key_validation_score, 2)


def prepare() -> None:
    """What a process does before its first reply."""
    import toml  # noqa: F401
    import xmltodict  # noqa: F401


def scores_of(reply: str, kind: str, paths: Sequence[str]) -> Scores:
    """Return the scores of a reply.

    Args:
        kind: the format, in lower case.
        paths: what the data should have.
    """
    named = raw_score(reply, paths)
    known = next((name for name in FORMATS if name == kind), None)
    if known is None:
        return Scores(raw_output_score=named, error_type="unsupported_type", error_message=f"no format {kind!r:.80}")
    try:
        data = _parsed(extract_code(reply), known)
    except Exception as error:
        # A reply can spell half of a surrogate pair, which no message can carry.
        message = f"{type(error).__name__}: {error}"[:MAX_MESSAGE_CHARACTERS].encode(errors="replace").decode()
        return Scores(raw_output_score=named, error_type="parse_error", error_message=message)
    if not data:
        return Scores(raw_output_score=named, error_type="parse_error", error_message="the data is empty")
    return Scores(1.0, _share([has_path(data, path) for path in paths]), named)


def raw_score(reply: str, paths: Sequence[str]) -> float:
    """Return the share of the paths that the reply contains as they are written, in any case."""
    text = reply.lower()
    return _share([path.lower() in text for path in paths])


def _parsed(code: str, kind: Format) -> Any:
    if kind == "csv":
        rows = csv.DictReader(io.StringIO(code))
        return {"csv_headers": rows.fieldnames, "csv_rows": list(rows)}
    if kind == "toml":
        import toml  # as the published scores; unlike the standard library's reader it refuses arrays of mixed types

        return toml.loads(code)
    return parse(code, kind)


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else 0.0


def extract_code(reply: str) -> str:
    """Return the first fenced block or, if there is none, what follows the first marker, or all; without blanks around.

    Escapes such as `\\n` and `\\u0062` are replaced first, also those inside of the code.
    """
    text = _unescaped(reply)
    fenced = _fenced(text)
    if fenced is not None:
        return fenced.strip()
    begin = _BEGIN.search(text)
    if begin is None:
        return text.strip()
    end = _END.search(text, begin.end())
    return text[begin.end() : end.start() if end else len(text)].strip()


def _unescaped(text: str) -> str:
    """Replace escapes. Characters beyond ASCII become the bytes of their UTF-8 form, each a character of Latin-1."""
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace(_EMPTY_THOUGHTS, "")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of escapes that there are not, which stay
            return codecs.decode(text.encode(), "unicode_escape")
    except UnicodeError:
        return text


def _fenced(text: str) -> str | None:
    """Return what follows the line of the first fence, up to the next one or the end."""
    start = text.find(_FENCE)
    line_end = text.find("\n", start + len(_FENCE)) if start >= 0 else -1
    if line_end < 0:
        return None
    return text[line_end + 1 :].partition(_FENCE)[0]
