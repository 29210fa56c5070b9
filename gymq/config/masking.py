"""Secrets: hiding them in what people see, leaving them out of what is compared."""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec

from gymq.redaction import may_name_secret, names_headers, names_secret, without_queries

MASK = "****"
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]+(?=@)")


def masked(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a copy to show to people, with secrets replaced by `****`.

    Hidden are the values of keys with a word such as token, key, secret, password, auth or webhook in them, everything
    below a key whose last word is one of these or `headers`, and credentials inside URLs. Null stays null.
    """
    return {str(key): _replaced(key, value, _shown, _hides_all_below) for key, value in tree.items()}


def fingerprint(tree: dict[str, Any]) -> str:
    """Return a digest of a configuration that tells whether a resumed run is the same one.

    It does not depend on the order of keys, on the names of the files, or on secrets: texts under a key whose last word
    is one such as token, key, secret or password, and credentials inside URLs. It is meant for the tree without
    addresses, which differ from start to start.

    Returns:
        64 hexadecimal digits of a SHA-256.
    """
    content = {
        str(key): _replaced(key, value, _compared, names_secret) for key, value in tree.items() if key != "config_paths"
    }
    return hashlib.sha256(msgspec.json.encode(content, order="sorted", enc_hook=str)).hexdigest()


def _replaced(key: Any, value: Any, replace: Callable[[str, Any], Any], covers: Callable[[str], bool]) -> Any:
    """Copy a value, replacing each scalar; what is below a key that `covers` keeps the name of that key."""
    if isinstance(value, dict):
        above = key if covers(str(key)) else None
        return {str(member): _replaced(above or member, item, replace, covers) for member, item in value.items()}
    if isinstance(value, list):
        return [_replaced(key, item, replace, covers) for item in value]
    return replace(str(key), value)


def _hides_all_below(key: str) -> bool:
    return names_secret(key) or names_headers(key)


def _shown(key: str, value: Any) -> Any:
    if value is not None and may_name_secret(key):
        return MASK
    return _without_credentials(value) if isinstance(value, str) else value


def _compared(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return MASK if names_secret(key) else _without_credentials(value)
    # JSON has no infinity, and 1.0 is not 1 for a worker that looks at types.
    return repr(value) if isinstance(value, float) else value


def _without_credentials(text: str) -> str:
    return without_queries(_USER_INFO.sub(MASK, text), MASK)
