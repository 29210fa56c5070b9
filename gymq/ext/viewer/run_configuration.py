"""A run's configuration as the viewer shows it: as YAML to read, and key by key to compare it with others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from gymq.data.run_configuration import RunConfiguration, read_configuration
from gymq.protocol.instances import SERVER_TYPE_OF

_SERVER_TYPES = {str(kind): server_type for kind, server_type in SERVER_TYPE_OF.items()}


class ConfigurationView(msgspec.Struct, frozen=True):
    """The configuration of a run; its texts are empty where none is stored."""

    options: str  # of the collection, as YAML
    workers: str  # as a configuration file has them
    values: dict[str, str]  # all of it by path, each value on one line
    is_cut: bool  # whether something was too long to be stored


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def configuration_view(stored: bytes) -> ConfigurationView:
    """Return what a run's record holds of its configuration."""
    found = read_configuration(stored) or RunConfiguration()
    workers = {
        name: {_SERVER_TYPES.get(one.kind, one.kind): {one.implementation: _nested(one.options)}}
        for name, one in found.workers.items()
    }
    return ConfigurationView(_yaml(_nested(found.options)), _yaml(workers), _values(found), found.is_cut)


def _values(found: RunConfiguration) -> dict[str, str]:
    values = {path: _line(value) for path, value in found.options.items()}
    for name, one in found.workers.items():
        values[name] = _line(one.implementation)
        if one.source:
            values[f"{name} (code)"] = one.source[:12]
        values |= {f"{name}.{path}": _line(value) for path, value in one.options.items()}
    return values


def _line(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:400]} …"


def _nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by path as mappings in mappings."""
    tree: dict[str, Any] = {}
    for path, value in options.items():
        *above, last = path.split(".")
        node: Any = tree
        for name in above:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                break
        if isinstance(node, dict) and last not in node:
            node[last] = value
        else:  # a key with a dot in it, beside one that is its beginning
            tree[path] = value
    return tree


def _yaml(tree: dict[str, Any]) -> str:
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100) if tree else ""
