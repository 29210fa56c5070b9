"""Overrides from the command line: `key=v` changes, `+key=v` adds, `++key=v` sets, `~key` deletes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gymq.config.errors import ConfigError, did_you_mean
from gymq.config.masking import MASK
from gymq.config.values import parse_value
from gymq.redaction import may_name_secret

Action = Literal["change", "add", "set", "delete"]
_PREFIXES: tuple[tuple[str, Action], ...] = (("++", "set"), ("+", "add"), ("~", "delete"), ("", "change"))


@dataclass(frozen=True)
class Override:
    """One parsed argument.

    Attributes:
        text: the argument as written, for messages; a secret value is hidden.
        action: what it does with the key.
        keys: the path of the key.
        value: what the key becomes; for `~key=v` the value it must have to be deleted.
        has_value: false for a bare `~key`.
    """

    text: str
    action: Action
    keys: tuple[str, ...]
    value: Any
    has_value: bool

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"override {self.text}: {problem}")


class _Place(NamedTuple):
    """How far the keys of an override exist: the real keys, and the names to choose from where they end."""

    path: tuple[Any, ...]
    names: list[str]
    complete: bool


def parse(arguments: Iterable[str]) -> list[Override]:
    """Parse overrides.

    Raises:
        ConfigError: if one is malformed, or `+key` gives a second value to a key.
    """
    parsed: list[Override] = []
    for argument in arguments:
        override = _parse(argument)
        if override.action == "add" and not isinstance(override.value, dict):
            earlier = next((other for other in reversed(parsed) if other.keys == override.keys), None)
            if earlier and earlier.action in ("add", "set"):
                raise override.error(f"{earlier.text} gave the key already; replace a value with ++")
        parsed.append(override)
    return parsed


def _parse(argument: str) -> Override:
    prefix, action = next((prefix, action) for prefix, action in _PREFIXES if argument.startswith(prefix))
    key, equals, value = argument.removeprefix(prefix).partition("=")
    secret = may_name_secret(key)
    shown = f"{prefix}{key}={MASK}" if equals and secret else argument
    keys = tuple(part.strip() for part in key.split("."))
    if not equals and action != "delete":
        raise ConfigError(f"override {shown}: there is no =; write key=value, +key=value, ++key=value or ~key")
    if not all(keys) or any(character in key for character in "[]{}'\"\n"):
        raise ConfigError(f"override {shown}: the key must be names with dots between them")
    try:
        return Override(shown, action, keys, parse_value(value), has_value=bool(equals))
    except ConfigError as error:
        problem = "the value cannot be read; put it in quotes" if secret else error
        raise ConfigError(f"override {shown}: {problem}") from None


def apply(config: DictConfig, overrides: Sequence[Override], known: frozenset[str]) -> None:
    """Apply overrides to a merged configuration, in order and in place.

    Args:
        config: the merged configuration, interpolations unresolved.
        overrides: what to do.
        known: top-level keys that `key=v` may give a value although nothing did before.

    Raises:
        ConfigError: if a key to change or delete does not exist, or a value does not fit on what it is laid over.
    """
    waiting: list[tuple[Override, DictConfig]] = []  # merged together, because each merge walks the whole tree
    for override in overrides:
        place = _find(config, override)
        if waiting and (override.action == "delete" or (override.action == "change" and not place.complete)):
            _merge(config, waiting)
            waiting = []
            place = _find(config, override)
        settable = place.complete or (not place.path and override.keys[0] in known)
        if (override.action == "change" and not settable) or (override.action == "delete" and not place.complete):
            raise _unknown(override, place)
        if override.action == "delete":
            _delete(config, place, override)
        else:
            path = (*place.path, *override.keys[len(place.path) :])
            waiting.append((override, _nested(override, path)))
    _merge(config, waiting)


def overlay(overrides: Iterable[Override]) -> DictConfig:
    """Return what the overrides say on their own; a deleted key is null."""
    config = OmegaConf.create()
    _merge(config, [(override, _nested(override, override.keys)) for override in overrides])
    return config


def _find(config: DictConfig, override: Override) -> _Place:
    node: Any = config
    path: tuple[Any, ...] = ()
    for key in override.keys:
        if isinstance(node, ListConfig):
            raise override.error(f"{'.'.join(map(str, path))} is a list; give the whole list")
        members: dict[str, Any] = {str(name): name for name in node} if isinstance(node, DictConfig) else {}
        if key not in members:
            return _Place(path, list(members), complete=False)
        name = members[key]
        path += (name,)
        has_value = not OmegaConf.is_interpolation(node, name) and not OmegaConf.is_missing(node, name)
        node = node[name] if has_value else None
    return _Place(path, [], complete=True)


def _unknown(override: Override, place: _Place) -> ConfigError:
    missing = override.keys[: len(place.path) + 1]
    hint = did_you_mean(missing[-1], place.names)
    if not hint and override.action == "change":
        hint = "; add a new key with +"
    return override.error(f"there is no {'.'.join(missing)}{hint}")


def _delete(config: DictConfig, place: _Place, override: Override) -> None:
    parent: Any = config
    for key in place.path[:-1]:
        parent = parent[key]
    if override.has_value:
        value = cast(dict[Any, Any], OmegaConf.to_container(parent, resolve=False))[place.path[-1]]
        if value != override.value:
            raise override.error("the key has another value")
    del parent[place.path[-1]]


def _nested(override: Override, path: tuple[Any, ...]) -> DictConfig:
    value = None if override.action == "delete" else override.value
    for key in reversed(path):
        value = {key: value}
    try:
        return cast(DictConfig, OmegaConf.create(value))
    except OmegaConfBaseException as error:
        raise override.error(str(error).splitlines()[0]) from None


def _merge(config: DictConfig, layers: Sequence[tuple[Override, DictConfig]]) -> None:
    try:
        config.merge_with(*(layer for _, layer in layers))
    except (OmegaConfBaseException, TypeError):
        for override, layer in layers:  # again one by one, to find out which of them it was
            try:
                config.merge_with(layer)
            except (OmegaConfBaseException, TypeError) as error:
                raise override.error(str(error).splitlines()[0]) from None
