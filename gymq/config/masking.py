"""Hiding secrets in output, and excluding them from comparisons."""

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gymq.config.instances import worker_options
from gymq.config.process_settings import LAYOUT
from gymq.data.run_changes import RecordedInstance, decisive_options, flattened, source_digest
from gymq.protocol.instances import Instance
from gymq.redaction import MASK, may_name_secret, names_headers, names_secret, without_named_secrets, without_queries

_NOT_DECISIVE = ("config_paths", LAYOUT)  # for the outcome of a run
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]+(?=@)")


def masked(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a copy to show to people, with secrets replaced by `****`.

    Hidden are the values of keys with a word such as token, key, secret, password, auth or webhook in them, everything
    below a key whose last word is one of these or `headers`, and credentials inside URLs. Null stays null.
    """
    return {str(key): _replaced(key, value, _shown, _hides_all_below) for key, value in tree.items()}


def record_instances(instances: Iterable[Instance]) -> dict[str, RecordedInstance]:
    """Return the workers of a configuration by name, to be stored with a run and compared on resume.

    The same values are hidden as by `masked`, except flags and limits counted in tokens. A text that is hidden only
    because of a word such as key in its name gets a short digest, so that changes are noticed; a secret gets none.
    """
    return {
        found.name: RecordedInstance(
            found.kind,
            found.implementation,
            record_options(worker_options(found)),
            source_digest(found.implementation),
        )
        for found in instances
    }


def digest_of(instance: Instance) -> str:
    """Return a digest of what a worker answers: of its options without secrets, and of the file with its code."""
    (recorded,) = record_instances([instance]).values()
    decisive = sorted(decisive_options(recorded).items())
    content = msgspec.json.encode([recorded.kind, recorded.implementation, decisive, recorded.source], enc_hook=str)
    return hashlib.sha256(content).hexdigest()


def record_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run by path, as they are stored with it; secrets are hidden as in `record_instances`."""
    kept = {key: _replaced(key, value, _kept, _hides_all_below) for key, value in options.items()}
    return dict(flattened(kept))


def fingerprint(tree: dict[str, Any]) -> str:
    """Return a digest of a configuration that identifies it when a run is resumed.

    It does not depend on the order of keys, on the names of the files, on the layout, or on secrets: texts under a key
    whose last word is one such as token, key, secret or password, and credentials inside URLs. It is meant for the
    tree without addresses, which differ from start to start.

    Returns:
        64 hexadecimal digits of a SHA-256.
    """
    content = {
        str(key): _replaced(key, value, _compared, names_secret)
        for key, value in tree.items()
        if key not in _NOT_DECISIVE
    }
    return hashlib.sha256(msgspec.json.encode(content, order="sorted", enc_hook=str)).hexdigest()


def _replaced(key: Any, value: Any, replace: Callable[[str, Any], Any], covers: Callable[[str], bool]) -> Any:
    """Copy a value, replacing each scalar; values below a key that `covers` keep the name of that key."""
    if isinstance(value, dict):
        above = key if covers(str(key)) else None
        return {str(name): _replaced(above or name, item, replace, covers) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(key, item, replace, covers) for item in value]
    return replace(str(key), value)


def _hides_all_below(key: str) -> bool:
    return names_secret(key) or names_headers(key)


def _shown(key: str, value: Any) -> Any:
    if value is not None and may_name_secret(key):
        return MASK
    return _without_credentials(value) if isinstance(value, str) else value


def _kept(key: str, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and ("tokens" in key or not may_name_secret(key)):
        is_json = math.isfinite(value) if isinstance(value, float) else value.bit_length() < 64
        return value if is_json else repr(value)
    text = _without_credentials(str(value))
    if _hides_all_below(key):
        return MASK
    return f"{MASK} {hashlib.sha256(text.encode()).hexdigest()[:8]}" if may_name_secret(key) else text


def _compared(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return MASK if names_secret(key) else _without_credentials(value)
    # JSON has no infinity, and 1.0 is not 1 for a worker that looks at types.
    return repr(value) if isinstance(value, float) else value


def _without_credentials(text: str) -> str:
    return without_named_secrets(without_queries(_USER_INFO.sub(MASK, text), MASK), MASK)
