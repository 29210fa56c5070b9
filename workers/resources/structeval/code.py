"""The code in a reply: what stands between markers or fences, or all of it. Takes time in proportion to the text."""

from __future__ import annotations

import codecs
import re
import warnings

_BEGIN = re.compile(r"<\|BEGIN_CODE\|>", re.IGNORECASE)
_END = re.compile(r"<\|END_CODE\|>", re.IGNORECASE)
_FENCE = "```"
_EMPTY_THOUGHTS = "<think>\n\n</think>\n\n"


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
