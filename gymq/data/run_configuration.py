"""The configuration of a run for its record: bounded in size and without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gymq.data.run_changes import RecordedInstance
from gymq.protocol.decoding import UNDECODABLE
from gymq.redaction import (
    MASK,
    environment_secrets,
    names_secret,
    without_hidden,
    without_named_secrets,
    without_queries,
)

MAX_BYTES = 64 * 1024

_ENVIRONMENTS = frozenset({"env", "environ", "environment"})  # of a program: any variable may be a secret


class RunConfiguration(msgspec.Struct, frozen=True):
    """How a run was set up."""

    options: dict[str, Any] = {}  # of the collection, by path, such as `responses_create_params.temperature`
    workers: dict[str, RecordedInstance] = {}  # by name; empty if the run used the workers of a running cluster
    is_cut: bool = False  # whether a text was too long to be stored


def encode_configuration(options: Mapping[str, Any], workers: Mapping[str, RecordedInstance]) -> bytes:
    """Return a configuration as JSON of at most `MAX_BYTES`.

    `record_options` and `record_instances` of `gymq.config` have hidden the values of names such as `api_key`. This
    function hides secrets in other places: commands and their arguments, variables of programs, headers in texts, URLs,
    keys of mappings, texts that look like a provider's key, and everywhere the secrets of this process's environment
    and options (`hide_options`).

    Args:
        options: options of the run, by path.
        workers: workers of the configuration.
    """
    for most in (20_000, 2_000, 200):  # characters of a text
        text = _Text(most)
        kept = _hidden(options, text)
        instances = {
            text.of(name): RecordedInstance(
                one.kind, text.of(one.implementation), _hidden(one.options, text), one.source
            )
            for name, one in workers.items()
        }
        encoded = msgspec.json.encode(RunConfiguration(kept, instances, text.is_cut))
        if len(encoded) <= MAX_BYTES:
            return encoded
    names = list(workers)[:40]
    bare = {
        text.of(name): RecordedInstance(workers[name].kind, text.of(workers[name].implementation), {}) for name in names
    }
    return msgspec.json.encode(RunConfiguration({}, bare, is_cut=True))


def read_configuration(stored: bytes) -> RunConfiguration | None:
    """Return a stored configuration; None if it is missing or cannot be read."""
    if not stored or len(stored) > MAX_BYTES:
        return None
    try:
        return msgspec.json.decode(stored, type=RunConfiguration)
    except UNDECODABLE:
        return None


class _Text:
    """Makes texts safe to keep, and remembers whether it has shortened one."""

    def __init__(self, most: int) -> None:
        self.is_cut = False
        self._most = most
        self._secrets = sorted((one for one in environment_secrets() if len(one) >= 8), key=len, reverse=True)

    def of(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        text = without_named_secrets(without_queries(without_hidden(text, MASK), MASK), MASK)
        if len(text) <= self._most:
            return text
        self.is_cut = True
        return f"{text[: self._most]} … ({len(text):,} characters)"


def _hidden(options: Mapping[str, Any], text: _Text) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for path, value in options.items():
        segments = path.split(".")
        # Keys below such a name may be secrets, too.
        secret = next((at for at, name in enumerate(segments[:-1], 1) if names_secret(name)), None)
        if secret is not None:
            kept[".".join(segments[:secret])] = MASK
        elif any(name.lower() in _ENVIRONMENTS for name in (segments if isinstance(value, list) else segments[:-1])):
            kept[text.of(path)] = MASK
        else:
            kept[text.of(path)] = _value(value, text)
    return kept


def _value(value: Any, text: _Text) -> Any:
    if isinstance(value, str):
        return text.of(value)
    if isinstance(value, Mapping):
        return _hidden({str(name): entry for name, entry in value.items()}, text)
    if not isinstance(value, list):
        return value
    kept: list[Any] = []
    for at, entry in enumerate(value):
        before = value[at - 1] if at else None
        is_secret = isinstance(before, str) and before.startswith("-") and names_secret(before)
        kept.append(MASK if is_secret and isinstance(entry, str) else _value(entry, text))
    return kept
