"""Overrides from the command line: `key=v` changes, `+key=v` adds, `++key=v` sets, `~key` deletes.

`INSTANCE.option` stands for `INSTANCE.KIND.IMPLEMENTATION.option`: an instance has one implementation, and the name of
one that is a file has dots, so that it cannot be part of a path.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gymq.config.errors import ConfigError, first_line
from gymq.config.sources import OVERRIDE
from gymq.config.values import parse_value
from gymq.data.datasets import HUB, READABLE
from gymq.errors import did_you_mean
from gymq.protocol.instances import KIND_OF
from gymq.redaction import MASK, may_name_secret

Action = Literal["change", "add", "set", "delete"]
_PREFIXES: tuple[tuple[str, Action], ...] = (("++", "set"), ("+", "add"), ("~", "delete"), ("", "change"))
_ROWS = "rows are given as --rows"
_FILES = (  # which options take them, by the ends of their names
    ((".yaml", ".yml"), "a configuration is given as --config"),
    ((".py",), "a file with a verifier is given as --resources"),
    (READABLE, _ROWS),
)


@dataclass(frozen=True)
class Override:
    """One parsed argument.

    Attributes:
        text: the argument as written, for messages; a secret value is hidden.
        action: change to the key.
        keys: the path of the key.
        value: new value of the key; for `~key=v` the value it must have to be deleted.
        has_value: false for a bare `~key`.
        option: the command's option that it comes from, such as `--model-url`, for messages.
    """

    text: str
    action: Action
    keys: tuple[str, ...]
    value: Any
    has_value: bool
    option: str = ""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.option or f"{OVERRIDE}{self.text}"

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.name}: {problem}")


class _Place(NamedTuple):
    """The existing part of the keys of an override, the last mapping on it, and the names that exist at its end."""

    path: tuple[Any, ...]
    mapping: DictConfig
    depth: int  # of the mapping: how many of the keys lead to it
    names: list[str]
    complete: bool


def from_option(option: str, argument: str) -> Override:
    """Parse the override for an option of a command.

    Args:
        option: its name in messages, without a value that may be secret.

    Raises:
        ConfigError: it is malformed.
    """
    return _parse(argument, option)


def parse(arguments: Iterable[str | Override]) -> list[Override]:
    """Parse overrides that are not parsed yet.

    Raises:
        ConfigError: one is malformed, or `+key` gives a second value to a key.
    """
    parsed: list[Override] = []
    for argument in arguments:
        override = argument if isinstance(argument, Override) else _parse(argument)
        if override.action == "add" and not isinstance(override.value, dict):
            earlier = next((other for other in reversed(parsed) if other.keys == override.keys), None)
            if earlier and earlier.action in ("add", "set"):
                raise override.error(f"{earlier.option or earlier.text} already gave the key; replace a value with ++")
        parsed.append(override)
    return parsed


def _parse(argument: str, option: str = "") -> Override:
    prefix, action = next((prefix, action) for prefix, action in _PREFIXES if argument.startswith(prefix))
    key, equals, value = argument.removeprefix(prefix).partition("=")
    hidden = f"{prefix}{key}={MASK}"
    is_secret = bool(equals) and may_name_secret(key)
    shown = hidden if is_secret else argument
    keys = tuple(part.strip() for part in key.split("."))
    if not equals and action != "delete":
        words = next((words for endings, words in _FILES if shown.endswith(endings)), None)
        if words is None and (shown.startswith(HUB) or Path(shown).exists()):
            words = _ROWS
        if words is not None:
            raise ConfigError(f"{shown}: {words} {shown}")
        raise ConfigError(f"override {shown}: = is missing; write key=value, +key=value, ++key=value or ~key")
    if not all(keys) or any(character in key for character in "[]{}'\"\n"):
        raise ConfigError(f"override {shown}: the key must be names with dots between them")
    parsed = Override(shown, action, keys, None, has_value=bool(equals), option=option)
    try:
        content = parse_value(value)
    except ConfigError as error:
        problem = "the value cannot be read; put it in quotes" if is_secret else str(error)
        raise parsed.error(problem) from None
    return replace(parsed, text=hidden if _holds_secret(content) else shown, value=content)


def _holds_secret(value: Any) -> bool:
    """Return whether a value has a key that may name a secret, at any depth."""
    if isinstance(value, dict):
        return any(may_name_secret(str(key)) or _holds_secret(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_holds_secret, value))


def apply(config: DictConfig, overrides: Sequence[Override], known: frozenset[str]) -> list[Override]:
    """Apply overrides to a merged configuration, in order and in place.

    Args:
        config: the merged configuration, interpolations unresolved.
        overrides: changes to make.
        known: top-level keys that `key=v` may give a value although nothing did before.

    Returns:
        The overrides with the full paths of the changed keys.

    Raises:
        ConfigError: a key to change or delete does not exist, or a value cannot be merged.
    """
    applied = []
    for given in overrides:
        override = _of_implementation(config, given)
        applied.append(override)
        place = _find(config, override)
        settable = place.complete or (not place.path and override.keys[0] in known)
        if (override.action == "change" and not settable) or (override.action == "delete" and not place.complete):
            raise _unknown(override, place)
        if override.action == "delete":
            _delete(place, override)
        else:
            # Into that mapping and not into the root: a merge walks everything below.
            path = (*place.path, *override.keys[len(place.path) :])
            _merge(place.mapping, override, path[place.depth :])
    return applied


def _of_implementation(config: DictConfig, override: Override) -> Override:
    """Return an override of `INSTANCE.option` with its full path; others stay unchanged.

    An option has a default in the worker's code, so `key=v` sets it too where the files do not.
    """
    name, *rest = override.keys
    if not rest or name not in config.keys():  # noqa: SIM118  (`in` of a DictConfig resolves the value)
        return override
    has_value = not OmegaConf.is_interpolation(config, name) and not OmegaConf.is_missing(config, name)
    if not has_value or not isinstance(config[name], DictConfig):
        return override
    block = cast(dict[Any, Any] | None, OmegaConf.to_container(config[name]))
    types = [key for key in block or () if key in KIND_OF]
    if not block or len(types) != 1 or rest[0] in map(str, block) or get_close_matches(rest[0], KIND_OF, cutoff=0.8):
        return override
    implementations = block[types[0]]
    if not isinstance(implementations, dict) or len(implementations) != 1:
        return override
    ((implementation, options),) = implementations.items()
    if not isinstance(options, dict) or "entrypoint" not in options:
        return override
    action: Action = "set" if override.action == "change" else override.action
    return replace(override, keys=(name, types[0], implementation, *rest), action=action)


def overlay(overrides: Iterable[Override]) -> DictConfig:
    """Return the values of the overrides alone; a deleted key is null."""
    config = OmegaConf.create()
    for override in overrides:
        _merge(config, override, override.keys)
    return config


def _find(config: DictConfig, override: Override) -> _Place:
    node: Any = config
    mapping, depth = config, 0
    path: tuple[Any, ...] = ()
    for key in override.keys:
        if isinstance(node, ListConfig):
            raise override.error(f"{'.'.join(map(str, path))} is a list; give the whole list")
        if not isinstance(node, DictConfig):
            return _Place(path, mapping, depth, [], complete=False)
        mapping, depth = node, len(path)
        members: dict[str, Any] = {str(name): name for name in mapping}
        if key not in members:
            return _Place(path, mapping, depth, list(members), complete=False)
        name = members[key]
        path += (name,)
        has_value = not OmegaConf.is_interpolation(mapping, name) and not OmegaConf.is_missing(mapping, name)
        node = mapping[name] if has_value else None
    return _Place(path, mapping, depth, [], complete=True)


def _unknown(override: Override, place: _Place) -> ConfigError:
    missing = override.keys[: len(place.path) + 1]
    hint = did_you_mean(missing[-1], place.names)
    if not hint and override.action == "change":
        hint = "; add a new key with +"
    return override.error(f"there is no {'.'.join(missing)}{hint}")


def _delete(place: _Place, override: Override) -> None:
    key = place.path[-1]
    if override.has_value:
        value = cast(dict[Any, Any], OmegaConf.to_container(place.mapping, resolve=False))[key]
        if value != override.value:
            raise override.error("the key has a different value")
    del place.mapping[key]


def _merge(mapping: DictConfig, override: Override, path: Sequence[Any]) -> None:
    value = None if override.action == "delete" else override.value
    for key in reversed(path):
        value = {key: value}
    try:
        mapping.merge_with(OmegaConf.create(value))
    except (OmegaConfBaseException, TypeError) as error:
        raise override.error(first_line(error)) from None
