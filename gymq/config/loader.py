"""Loading: from files, env.yaml, a program's values and the command line to one resolved configuration."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import EllipsisType
from typing import Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from gymq.config import overrides as command_line
from gymq.config.errors import ConfigError, Keys, choices, dotted, first_line
from gymq.config.instances import check_references, find_instances
from gymq.config.overrides import Override
from gymq.config.schema import RUN_KEYS
from gymq.config.sources import (
    CONFIG_PATHS,
    INITIAL,
    Source,
    find,
    listed_files,
    merge,
    place,
    read,
    read_tree,
)
from gymq.errors import did_you_mean
from gymq.extensions import extensions
from gymq.protocol.instances import Instance
from gymq.workers import SHIPPED

ENV_YAML = "env.yaml"
MISSING = "???"
DIRECTIVES = frozenset({"_copy", "_delete_key", "_inherit_from", "_swap_key"})
"""Keys of NeMo Gym's configurations that copy, move or delete other parts; an entry point `gymq.directives` does it."""

_DIRECTIVE = re.compile(r"\s*\$\{\s*(inherit_from|swap_key|copy)\s*:")
USUAL_VALUES = frozenset({"policy_base_url", "policy_api_key", "policy_model_name"})
"""Values that configurations of models refer to; they may be unused."""
_logger = logging.getLogger("gymq.config")


@dataclass(frozen=True)
class Config:
    """A resolved configuration.

    Attributes:
        tree: all of it as plain dicts, lists and scalars, nothing left to resolve.
        instances: the workers it describes, in order of appearance.
        sources: its layers from low to high precedence, one for each override, to name lines in messages.
    """

    tree: dict[str, Any]
    instances: list[Instance]
    sources: Sequence[Source] = field(default=(), repr=False, compare=False)

    @property
    def agents(self) -> list[str]:
        """The names of its agents."""
        return [instance.name for instance in self.instances if instance.kind == "agents"]

    @property
    def only_agent(self) -> str | None:
        """The agent of rows that name none, if there is just one."""
        return self.agents[0] if len(self.agents) == 1 else None

    def instance(self, name: str) -> Instance:
        """Return the instance of a name.

        Raises:
            ConfigError: it does not exist.
        """
        for instance in self.instances:
            if instance.name == name:
                return instance
        names = [instance.name for instance in self.instances]
        raise ConfigError(f"no instance is named {name}{choices(name, names)}")


def load(
    config_paths: Sequence[str | PathLike[str]],
    overrides: Sequence[str | Override] = (),
    *,
    root: str | PathLike[str] | None = None,
    env_yaml: str | PathLike[str] | EllipsisType | None = ...,
    initial: Mapping[str, Any] | None = None,
    extra_roots: Sequence[str | PathLike[str]] = (),
) -> Config:
    """Load, merge, resolve and check a configuration.

    From low to high precedence: the files and what they include, env.yaml, `initial`, the overrides. A configuration
    without instances is valid.

    Args:
        config_paths: the files to start from. If empty, `config_paths` of env.yaml, `initial` or the overrides.
        overrides: arguments `key=v` (the key must exist), `+key=v`, `++key=v` and `~key`.
        root: the directory that relative names start from, by default the current one. What gymq ships, `workers/` and
            `examples/`, comes after it.
        env_yaml: the file to read as env.yaml, None for none; by default the first env.yaml under the roots.
        initial: values from an embedding program.
        extra_roots: directories to look in before `root`.

    Raises:
        ConfigError: the configuration is invalid; one line with the place.
    """
    base = (Path(root) if root is not None else Path.cwd()).absolute()
    roots = [*(Path(extra).absolute() for extra in extra_roots), base, SHIPPED]
    arguments = command_line.parse(overrides)
    upper = [*_read_env(env_yaml, roots), *_read_initial(initial)]
    given = Source("command line", command_line.overlay(arguments))

    early = Source("", merge([*upper, given]))
    entries = listed_files(early.config, place([*upper, given], (CONFIG_PATHS,)))
    if config_paths:
        if any(argument.keys == (CONFIG_PATHS,) for argument in arguments):
            raise ConfigError(f"files are given both directly and with an override of {CONFIG_PATHS}; use one of them")
        entries = [str(path) for path in config_paths]
    early.config.pop(CONFIG_PATHS, None)
    names, files = read_tree(entries, roots, early)

    merged = merge([*files, *upper])
    arguments = command_line.apply(merged, arguments, known=RUN_KEYS)
    if names:
        merged[CONFIG_PATHS] = names
    raw = cast(dict[str, Any], OmegaConf.to_container(merged))
    sources = [*files, *upper, Source(given.name, command_line.overlay(arguments))]
    expanded = _carried_out(raw, sources)
    # Most configurations have no directives, and creating the OmegaConf nodes of a large tree takes long.
    tree = resolve(merged if expanded == raw else OmegaConf.create(expanded), sources)
    instances = _checked_instances(tree, sources)
    _fill_in(tree, instances, base)
    each = (Source(one.name, command_line.overlay([one])) for one in arguments)
    return Config(tree, instances, [*files, *upper, *each])


def _carried_out(tree: dict[str, Any], sources: Sequence[Source]) -> dict[str, Any]:
    """Return a tree with its directives carried out."""
    if _has_directives(tree):
        for found in extensions("directives"):
            tree = found.load()(tree, sources)
    return tree


def _has_directives(value: Any) -> bool:
    if isinstance(value, dict):
        return not DIRECTIVES.isdisjoint(value) or any(map(_has_directives, value.values()))
    if isinstance(value, list):
        return any(map(_has_directives, value))
    return isinstance(value, str) and _DIRECTIVE.match(value) is not None


def _read_env(env_yaml: str | PathLike[str] | EllipsisType | None, roots: Sequence[Path]) -> list[Source]:
    if env_yaml is None:
        return []
    if not isinstance(env_yaml, EllipsisType):
        return [read(find(str(env_yaml), roots), str(env_yaml))]
    found = [root / ENV_YAML for root in roots if (root / ENV_YAML).is_file()]
    return [read(found[0], ENV_YAML)] if found else []


def _read_initial(initial: Mapping[str, Any] | None) -> list[Source]:
    if not initial:
        return []
    try:
        config = OmegaConf.create(initial if isinstance(initial, DictConfig) else dict(initial))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{INITIAL}: {error.full_key}: {first_line(error)}") from None
    return [Source(INITIAL, config)]


def _fill_in(tree: dict[str, Any], instances: Sequence[Instance], base: Path) -> None:
    """Make directories absolute, because workers run in other folders, and pass run-wide options to the agents."""
    for key in ("results_dir", "cache_dir"):
        if tree.get(key) is not None:
            if not isinstance(tree[key], str) or not tree[key]:
                raise ConfigError(f"{key} must be the path of a directory, not {tree[key]!r}")
            tree[key] = str(base / Path(tree[key]).expanduser())
    for instance in instances:
        if instance.kind == "agents":
            for key in ("skip_verification", "skip_verification_reward"):
                if tree.get(key) is not None:
                    instance.options.setdefault(key, tree[key])


def _checked_instances(tree: dict[str, Any], sources: Sequence[Source]) -> list[Instance]:
    instances, invalid = find_instances(tree, sources)
    strict = tree.get("error_on_almost_servers", True)
    if not isinstance(strict, bool):
        raise ConfigError(f"error_on_almost_servers must be true or false, not {strict!r}")
    if invalid and strict:
        count = "1 instance is" if len(invalid) == 1 else f"{len(invalid)} instances are"
        skip = "set error_on_almost_servers=false to run without what is not valid"
        raise ConfigError(f"{count} not valid: {'; '.join(invalid)}; {skip}")
    for message in invalid:
        _logger.warning("skipped an instance that is not valid: %s", message)
    check_references(tree, instances, sources)
    return instances


def resolve(config: DictConfig, sources: Sequence[Source]) -> dict[str, Any]:
    """Return a configuration as plain data, with all interpolations resolved.

    Args:
        config: a merged configuration without directives.
        sources: its layers, to name lines in messages.

    Raises:
        ConfigError: naming all values that are unset, or else all that cannot be resolved.
    """
    tree = cast(dict[str, Any], OmegaConf.to_container(config))
    unset = list(_unset(tree, ()))
    if unset:
        listed = ", ".join(f"{dotted(keys)}{place(sources, keys)}" for keys in unset)
        count = "1 required value is" if len(unset) == 1 else f"{len(unset)} required values are"
        example = f"++{dotted(unset[0])}=VALUE"
        raise ConfigError(f"{count} unset ({MISSING}): {listed}; give values in env.yaml, in a file, or with {example}")
    try:
        return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    except OmegaConfBaseException as error:
        problems = [
            f"{dotted(keys)}: cannot be resolved: {_reason(problem, tree)}{place(sources, keys)}"
            for keys, problem in _unresolvable(config, ())
        ]
        raise ConfigError("; ".join(problems) or first_line(error)) from None


def _unset(value: Any, keys: Keys) -> Iterator[Keys]:
    if isinstance(value, str) and value == MISSING:
        yield keys
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _unset(item, (*keys, key))


def _unresolvable(config: DictConfig | ListConfig, keys: Keys) -> Iterator[tuple[Keys, InterpolationResolutionError]]:
    names: Any = config if isinstance(config, DictConfig) else range(len(config))
    for key in names:
        try:
            item = config[key]
        except InterpolationResolutionError as error:
            yield (*keys, key), error
            continue
        if isinstance(item, DictConfig | ListConfig) and not OmegaConf.is_interpolation(config, key):
            yield from _unresolvable(item, (*keys, key))


def _reason(error: InterpolationResolutionError, tree: dict[str, Any]) -> str:
    reason = first_line(error)
    unknown = re.fullmatch(r"Interpolation key '(.+)' not found", reason)
    if unknown is None:
        return reason
    name = unknown[1]
    hint = f"; give it in {ENV_YAML}" if name in USUAL_VALUES else did_you_mean(name, map(str, tree))
    return f"there is no {name}{hint}"
