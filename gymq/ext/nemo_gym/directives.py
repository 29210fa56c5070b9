"""Directives: parts of a configuration that are copied or moved from elsewhere in it.

`x: ${copy:a.b}` copies `a.b` to `x`. `x: {_copy: a.b, ...}` also merges the other keys of `x` over the copy. With
`inherit_from` instead of `copy` the source is moved; `swap_key` is an older name of it. `_delete_key: a, b` removes
keys of the mapping that contains it, its own and copied ones at any depth.

Sources are read from the merged configuration, before anything is moved or deleted; directives in them are applied.
"""

import re
from collections.abc import Sequence
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gymq.config.errors import ConfigError, Keys, dotted, first_line
from gymq.config.loader import MISSING
from gymq.config.sources import Source, place
from gymq.errors import did_you_mean

_TEXT = re.compile(r"\$\{\s*(inherit_from|swap_key|copy)\s*:((?:[^{}$]|\$\{[^{}]*\})+)\}")
_MOVES, _COPY, _DELETE = ("_inherit_from", "_swap_key"), "_copy", "_delete_key"
_ABSENT = object()


def carry_out(tree: dict[str, Any], sources: Sequence[Source]) -> dict[str, Any]:
    """Return the tree with all directives applied.

    Args:
        tree: the merged configuration, interpolations unresolved.
        sources: its layers, to name lines in messages.

    Raises:
        ConfigError: if a directive names something that does not exist, or two need each other.
    """
    expansion = _Expansion(tree, sources)
    result: dict[str, Any] = expansion.expand(tree, ())
    for keys in expansion.moved:
        _remove(result, keys)
    return result


class _Expansion:
    """One pass over a tree.

    Attributes:
        moved: the paths that moves have taken, to be removed at the end.
    """

    def __init__(self, tree: dict[str, Any], sources: Sequence[Source]) -> None:
        self.tree = tree
        self.sources = sources
        self.moved: list[Keys] = []
        self._open: list[Keys] = []

    def expand(self, value: Any, at: Keys, *, is_merged: bool = False) -> Any:
        """Return a copy of the value at a path, with its directives applied.

        Args:
            is_merged: whether the copy will be merged over another value; `_delete_key` then applies to both.
        """
        if isinstance(value, list):
            return [self.expand(item, (*at, index)) for index, item in enumerate(value)]
        if isinstance(value, str):
            match = _TEXT.fullmatch(value.strip())
            return self._take(match[2], match[1] != "copy", at) if match else value
        if not isinstance(value, dict):
            return value
        own = dict(value)
        directives = [(key, own.pop(key)) for key in (*_MOVES, _COPY) if key in own]
        directives = [(key, source) for key, source in directives if source is not None]
        names = self._names(own.pop(_DELETE, None), (*at, _DELETE))
        must_exist = {name: own.pop(name, _ABSENT) is _ABSENT for name in names}
        is_merged = is_merged or bool(directives)
        own = {key: self.expand(entry, (*at, key), is_merged=is_merged) for key, entry in own.items()}
        if must_exist and is_merged:
            own[_DELETE] = must_exist
        if not directives:
            return own
        if len(directives) > 1:
            raise self._error(at, f"{' and '.join(key for key, _ in directives)} exclude each other")
        ((directive, source),) = directives
        taken = self._take(source, directive in _MOVES, (*at, directive))
        if taken == MISSING:
            return MISSING
        merged = self._merge(taken, own, (*at, directive))
        self._delete(merged, at)
        return merged

    def _delete(self, value: Any, at: Keys) -> None:
        """Delete the keys that `_delete_key` named in a merged mapping, at every depth."""
        if not isinstance(value, dict):
            return
        for name, must_exist in value.pop(_DELETE, {}).items():
            if value.pop(name, _ABSENT) is _ABSENT and must_exist:
                raise self._error((*at, _DELETE), f"there is no {name}{did_you_mean(name, map(str, value))}")
        for key, entry in value.items():
            self._delete(entry, (*at, key))

    def _take(self, source: Any, move: bool, at: Keys) -> Any:
        """Return the source of a directive at a path."""
        found, keys = self._look_up(self._resolved(source, at).strip().split("."), at)
        if found == MISSING:
            return MISSING
        if move:
            self.moved.append(keys)
        return self._guarded(found, keys, at)

    def _guarded(self, value: Any, keys: Keys, at: Keys) -> Any:
        if keys in self._open:
            raise self._error(at, f"{dotted(keys)} needs itself")
        self._open.append(keys)
        expanded = self.expand(value, keys)
        self._open.pop()
        return expanded

    def _look_up(self, names: list[str], at: Keys) -> tuple[Any, Keys]:
        """Find a value and its path; directives of the mappings on the way are applied."""
        node: Any = self.tree
        passed: Keys = ()
        for name in names:
            if _has_source(node) and passed not in self._open:
                node = self._guarded(node, passed, at)
            if node == MISSING:
                break
            by_name = {str(key): key for key in node} if isinstance(node, dict) else {}
            if name not in by_name:
                inside = f" in {dotted(passed)}" if passed else ""
                problem = f"{'.'.join(names)} does not exist: there is no {name}{inside}{did_you_mean(name, by_name)}"
                raise self._error(at, problem)
            passed = (*passed, by_name[name])
            node = node[by_name[name]]
        return node, passed

    def _merge(self, taken: Any, own: dict[Any, Any], at: Keys) -> dict[Any, Any]:
        if not isinstance(taken, dict):
            raise self._error(at, "names a value that is not a mapping, so nothing can be laid over it")
        try:
            merged = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(taken), OmegaConf.create(own)))
        except (TypeError, OmegaConfBaseException) as error:
            raise self._error(at, first_line(error)) from None
        assert isinstance(merged, dict)
        return merged

    def _names(self, value: Any, at: Keys) -> list[str]:
        """Read the names of `_delete_key`: a text with commas, or a list."""
        if value is None:
            return []
        parts = value if isinstance(value, list) else self._resolved(value, at).split(",")
        return [self._resolved(part, at).strip() for part in parts]

    def _resolved(self, value: Any, at: Keys) -> str:
        """Resolve interpolations in the argument of a directive."""
        if not isinstance(value, str):
            raise self._error(at, f"must name a key, not {value!r}")
        if "${" not in value:
            return value
        try:
            return str(OmegaConf.create({**self.tree, _COPY: value})[_COPY])
        except OmegaConfBaseException as error:
            raise self._error(at, f"cannot resolve {value}: {first_line(error)}") from None

    def _error(self, at: Keys, problem: str) -> ConfigError:
        return ConfigError(f"{dotted(at)}: {problem}{place(self.sources, at)}")


def _has_source(node: Any) -> bool:
    if isinstance(node, dict):
        return any(node.get(key) is not None for key in (*_MOVES, _COPY))
    return isinstance(node, str) and bool(_TEXT.fullmatch(node.strip()))


def _remove(tree: dict[str, Any], keys: Keys) -> None:
    node: Any = tree
    for key in keys[:-1]:
        node = node.get(key) if isinstance(node, dict) else None
    if isinstance(node, dict):
        node.pop(keys[-1], None)
