"""Secrets: hiding them in what people see, leaving them out of what is compared."""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec

from gymq.redaction import SECRET_NAME

MASK = "****"
_SECRET_WORDS = ("token", "key", "secret", "password", "authorization", "credential")
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]+(?=@)")
_QUERY = re.compile(rf"([?&][^=&#\s]*(?:{'|'.join(_SECRET_WORDS)})[^=&#\s]*=)[^&#\s]+", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Return whether the value of a key is to be hidden from people."""
    return any(word in key.lower() for word in _SECRET_WORDS)


def masked(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a copy to show to people, with secrets replaced by `****`.

    Hidden are the values of keys that contain token, key, secret, password, authorization or credential, everything
    below a key whose last word is one of these, and credentials inside URLs. Null stays null.
    """
    return {str(key): _replaced(key, value, _shown) for key, value in tree.items()}


def fingerprint(tree: dict[str, Any]) -> str:
    """Return a digest of a configuration that tells whether a resumed run is the same one.

    It does not depend on the order of keys, on the names of the files, or on secrets: texts under a key whose last word
    is token, key, secret, password, authorization or credential, and credentials inside URLs. It is meant for the tree
    without addresses, which differ from start to start.

    Returns:
        64 hexadecimal digits of a SHA-256.
    """
    content = {str(key): _replaced(key, value, _compared) for key, value in tree.items() if key != "config_paths"}
    return hashlib.sha256(msgspec.json.encode(content, order="sorted", enc_hook=str)).hexdigest()


def _replaced(key: Any, value: Any, replace: Callable[[str, Any], Any]) -> Any:
    """Copy a value, replacing each scalar; what is below a key named like a secret keeps the name of that key."""
    if isinstance(value, dict):
        secret = key if SECRET_NAME.search(str(key)) else None
        return {str(member): _replaced(secret or member, item, replace) for member, item in value.items()}
    if isinstance(value, list):
        return [_replaced(key, item, replace) for item in value]
    return replace(str(key), value)


def _shown(key: str, value: Any) -> Any:
    if value is not None and is_secret(key):
        return MASK
    return _without_credentials(value) if isinstance(value, str) else value


def _compared(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return MASK if SECRET_NAME.search(key) else _without_credentials(value)
    # JSON has no infinity, and 1.0 is not 1 for a worker that looks at types.
    return repr(value) if isinstance(value, float) else value


def _without_credentials(text: str) -> str:
    return _QUERY.sub(rf"\1{MASK}", _USER_INFO.sub(MASK, text))
