"""Arguments of calls: objects in some dialects, in Responses the text that the model wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

UNPARSED_ARGUMENTS = "__unparsed_arguments__"
"""Key of an object that holds arguments which are not a JSON object, as the model wrote them."""


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call as text."""
    unparsed = arguments.get(UNPARSED_ARGUMENTS)
    return unparsed if isinstance(unparsed, str) else json.dumps(arguments, ensure_ascii=False)


def arguments_object(text: str | None) -> dict[str, Any]:
    """Return the arguments of a call as an object, from which `arguments_text` restores the text."""
    try:
        parsed = json.loads(text or "", parse_constant=_refuse)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {UNPARSED_ARGUMENTS: text or ""}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
