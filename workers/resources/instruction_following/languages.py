"""Instructions about the language of a text. A text whose language cannot be detected follows them."""

from __future__ import annotations

import functools
import os
from typing import Any

from gymq.workers.resources.instruction_following.arguments import Check


def response_language(text: str, *, language: str) -> bool:
    """The text is in the language, given by its code: `en`, `zh-cn`."""
    if language not in os.listdir(_langdetect().PROFILES_DIRECTORY):
        raise ValueError(f"{language!r} is not a language that can be detected")
    return detect(text) in (language, None)


def detect(text: str) -> str | None:
    """Return the code of the text's language; None if it cannot be detected."""
    library = _langdetect()
    try:
        code: str = library.detect(text)
    except library.LangDetectException:
        return None
    return code


@functools.cache
def _langdetect() -> Any:
    """langdetect, with a fixed seed: it is random otherwise."""
    import langdetect

    langdetect.DetectorFactory.seed = 0
    return langdetect


CHECKS: dict[str, Check] = {
    "change_case:english_capital": lambda text: text.isupper() and detect(text) in ("en", None),
    "change_case:english_lowercase": lambda text: text.islower() and detect(text) in ("en", None),
    "language:response_language": response_language,
}
