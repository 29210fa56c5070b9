"""Differences between two starts of a run, in settings and in options of its workers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gymq.redaction import MASK

_NOT_ASKED = frozenset(
    {
        *("cache", "cache_max_gb", "debug", "default_headers", "dialect", "hf_home", "max_concurrency"),
        *("max_concurrent_requests", "num_concurrent_requests", "openai_default_headers", "show_vllm_engine_stats"),
    }
)
"""Options of models that affect neither requests nor which model answers."""

_NOT_ASKED_WORD = re.compile(r"(?:^|_)(?:urls?|uri|host|port|timeouts?|timeout_s|retries|concurrency|ray)$")
_OF_EVERY_WORKER = frozenset({"isolated", "max_concurrency", "num_workers", "pass_env", "verified_url"})


class Change(NamedTuple):
    """A setting with another value than before."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        hidden = any(str(value).startswith(MASK) for value in (self.before, self.now))
        values = " (the values are not shown)" if hidden else f" from {_shown(self.before)} to {_shown(self.now)}"
        return f"{self.name} changed{values}"


class RecordedInstance(msgspec.Struct, frozen=True):
    """One worker of a configuration."""

    kind: str
    implementation: str
    options: dict[str, Any]  # by path, such as `reasoning.effort`; secrets are hidden
    source: str = ""  # digest of the file with its code, where the implementation is a file


def source_digest(implementation: str) -> str:
    """Return a digest of the implementation's file; empty if it is a name, or cannot be read."""
    file = Path(implementation.partition(":")[0])
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.suffix == ".py" else ""
    except OSError:
        return ""


def changed_options(
    before: Mapping[str, RecordedInstance], now: Mapping[str, RecordedInstance]
) -> tuple[list[Change], list[str]]:
    """Return the differences between the workers that both configurations have.

    A worker in only one of them does not count: it matters only if a row or another worker's option names it.

    Returns:
        The changes that affect requests or which model answers, and sentences about the others, such as another URL of
        a model. Edited code is among the others, so that a run can be resumed after its verifier was fixed.
    """
    asked: list[Change] = []
    not_asked: list[str] = []
    for name in sorted(before.keys() & now.keys()):
        old, new = before[name], now[name]
        if (old.kind, old.implementation) != (new.kind, new.implementation):
            asked.append(Change(name, old.implementation, new.implementation))
            continue
        if old.source and new.source and old.source != new.source:
            not_asked.append(f"{new.implementation} changed; rollouts that are done stay as they are")
        for key in sorted(old.options.keys() | new.options.keys()):
            change = Change(f"{name}.{key}", old.options.get(key), new.options.get(key))
            if change.before == change.now:
                continue
            if _is_not_asked(new.kind, key.partition(".")[0]):
                not_asked.append(str(change))
            else:
                asked.append(change)
    return asked, not_asked


def changed_fields(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Return the differences between two mappings, with nested ones under their path."""
    old, new = dict(flattened(before)), dict(flattened(now))
    names = sorted(old.keys() | new.keys())
    return [Change(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def decisive_options(recorded: RecordedInstance) -> dict[str, Any]:
    """Return the options that decide what a worker answers; the endpoint of a model is among them."""
    return {
        key: value
        for key, value in recorded.options.items()
        if (option := key.partition(".")[0]).endswith(("url", "urls")) or not _is_not_asked(recorded.kind, option)
    }


def _is_not_asked(kind: str, option: str) -> bool:
    if option in _OF_EVERY_WORKER:
        return True
    return kind == "models" and (option in _NOT_ASKED or _NOT_ASKED_WORD.search(option) is not None)


def flattened(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings with their path."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:60]}..."
