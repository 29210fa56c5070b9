"""Sources of a configuration: the files, the order in which they are merged, and the line of each value."""

import io
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gymq.config.errors import ConfigError, Keys, dotted, first_line
from gymq.config.relative_paths import resolve_relative_paths
from gymq.protocol.instances import KIND_OF
from gymq.workers import SHIPPED

CONFIG_PATHS = "config_paths"
INITIAL = "initial values"  # the name of the source that an embedding program gives
OVERRIDE = "override "  # begins the name of a source that is one override
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Source:
    """One layer of the configuration.

    Attributes:
        name: name in messages; for a file the name it was given by.
        config: its content, nothing resolved.
        text: the YAML text, None if it was not a file.
        folder: folder of the file, None if it was not a file.
        written: the spelling in the text of implementations that are renamed relative to the current folder.
    """

    name: str
    config: DictConfig
    text: str | None = None
    folder: Path | None = None
    written: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def content(self) -> Any:
        """YAML nodes, which know their lines, or plain values; only needed for messages."""
        if self.text is not None:
            return yaml.compose(self.text, Loader=_LOADER)
        return OmegaConf.to_container(self.config, resolve=False)

    def place_of(self, keys: Keys) -> str | None:
        """Return `file:line` of a value, the name of a source without lines, or None if it is not from here."""
        node, line = self.content, None
        for key in keys:
            if isinstance(node, yaml.MappingNode):
                pairs = {pair[0].value: pair for pair in node.value}
                name = self.written.get(str(key), str(key))
                if name not in pairs:
                    return None
                line, node = pairs[name][0].start_mark.line + 1, pairs[name][1]
            elif isinstance(node, yaml.SequenceNode):
                if not isinstance(key, int) or key >= len(node.value):
                    return None
                node = node.value[key]
                line = node.start_mark.line + 1
            elif isinstance(node, dict) and key in node:
                node = node[key]
            else:
                return None
        return f"{self.name}:{line}" if line else self.name


_OF_A_CHECKOUT = re.compile(
    rf"(?P<kind>{'|'.join(KIND_OF)})/(?P<worker>[A-Za-z0-9_]{{1,100}})/configs/(?P<file>[A-Za-z0-9_-]{{1,100}}\.ya?ml)"
)
_logger = logging.getLogger("gymq.config")


def place(sources: Sequence[Source], keys: Keys) -> str:
    """Return ` (file:line)` for messages: the last source of a value, or of the nearest mapping around it.

    Args:
        sources: the layers from low to high precedence.
        keys: the path of the value.
    """
    found = origin(sources, keys)
    return f" ({found})" if found else ""


def origin(sources: Sequence[Source], keys: Keys) -> str | None:
    """Return `file:line`, or the name of a source without lines: the last source of a value or of a mapping around it.

    Args:
        sources: the layers from low to high precedence.
        keys: the path of the value.

    Returns:
        None if no source has any key of the path.
    """
    for length in range(len(keys), 0, -1):
        for source in reversed(sources):
            found = source.place_of(keys[:length])
            if found:
                return found
    return None


def read(path: Path, name: str) -> Source:
    """Read one YAML file.

    Raises:
        ConfigError: if it cannot be read, is not YAML, or does not hold a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    try:
        config = OmegaConf.load(io.StringIO(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML{_yaml_problem(error)}") from None
    except OmegaConfBaseException as error:
        key = f"{error.full_key}: " if error.full_key else ""
        raise ConfigError(f"{name}: {key}{first_line(error)}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply") from None
    except (ValueError, LookupError, AttributeError) as error:  # from what the YAML library makes of `!!int abc`
        raise ConfigError(f"{name}: a value does not fit its YAML tag (!!): {error}") from None
    except OSError:  # OmegaConf raises this for a document that is a number or a date
        config = OmegaConf.create([])
    source = Source(name, cast(DictConfig, config), text)
    # OmegaConf reads plain text as a mapping with the text as its only key.
    if not isinstance(config, DictConfig) or (len(config) == 1 and not isinstance(source.content, yaml.MappingNode)):
        raise ConfigError(f"{name}: must contain a mapping (`key: value` lines)")
    folder = path.absolute().parent
    tree = cast(dict[Any, Any], OmegaConf.to_container(config))
    written = resolve_relative_paths(tree, folder)
    changed = config if OmegaConf.to_container(config) == tree else OmegaConf.create(tree)
    return replace(source, config=changed, folder=folder, written=written)


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    start = getattr(error, "context_mark", None)
    context = f" {getattr(error, 'context', '')} that starts at line {start.line + 1}" if start else ""
    return f"{where}: {getattr(error, 'problem', None) or first_line(error)}{context}"


def find(entry: str, roots: Sequence[Path]) -> Path:
    """Return the file that an entry of `config_paths` names: the first that exists under one of the roots.

    If it does not exist, and the entry names a file in a checkout of NeMo Gym, such as
    `resources_servers/mcqa/configs/mcqa.yaml`, it is the configuration of the shipped worker of that name.

    Raises:
        ConfigError: naming the places searched.
    """
    try:
        candidates = [root / Path(entry).expanduser() for root in roots]  # an absolute entry replaces the root
        for candidate in candidates:
            if candidate.exists() and not candidate.is_dir():
                return candidate
    except (OSError, RuntimeError) as error:  # a name too long, no permission, an unknown ~user
        raise ConfigError(f"config file {entry}: {error}") from None
    if (shipped := _shipped_equivalent(entry)) is not None:
        _logger.warning("config file %s does not exist here, so %s is used", entry, shipped.relative_to(SHIPPED))
        return shipped
    if (folder := next((candidate for candidate in candidates if candidate.is_dir()), None)) is not None:
        files = ", ".join(file.name for file in sorted(folder.glob("*.yaml")))
        raise ConfigError(f"config file {entry} is a folder; name a file in it; its YAML files: {files or 'none'}")
    searched = ", ".join(dict.fromkeys(str(candidate) for candidate in candidates))
    raise ConfigError(f"config file {entry} does not exist; looked for {searched}")


def _shipped_equivalent(entry: str) -> Path | None:
    found = _OF_A_CHECKOUT.fullmatch(entry)
    if found is None:
        return None
    folder = SHIPPED / "workers" / KIND_OF[found["kind"]] / found["worker"]
    candidates = (folder / "configs" / found["file"], folder / "config.yaml")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def listed_files(config: DictConfig, where: str) -> list[str]:
    """Return the `config_paths` of a configuration, resolved.

    Raises:
        ConfigError: if they are not a list of file names.
    """
    try:
        value = config.get(CONFIG_PATHS)
        if OmegaConf.is_config(value):
            value = OmegaConf.to_container(value, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{CONFIG_PATHS}: {first_line(error)}{where}") from None
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ConfigError(f"{CONFIG_PATHS} must be a list of file names, not {value!r}{where}")
    return value


def merge(sources: Sequence[Source]) -> DictConfig:
    """Merge layers from low to high precedence: mappings deeply; lists, scalars and null replace.

    Raises:
        ConfigError: if a mapping and a list meet under one key.
    """
    try:
        return cast(DictConfig, OmegaConf.merge(OmegaConf.create(), *(source.config for source in sources)))
    except TypeError as error:
        raise ConfigError(_clash(sources) or str(error)) from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from None


def _clash(sources: Sequence[Source]) -> str:
    """Return a message about a key that is a mapping in one source and a list in a later one, or vice versa."""
    seen: dict[Keys, type] = {}
    for source in sources:
        pending: list[tuple[Keys, Any]] = [((), OmegaConf.to_container(source.config, resolve=False))]
        while pending:
            keys, value = pending.pop()
            if {seen.get(keys), type(value)} == {dict, list}:
                kinds = ("a mapping", "a list") if isinstance(value, dict) else ("a list", "a mapping")
                return f"{dotted(keys)}: {kinds[0]}{place([source], keys)} cannot be merged with {kinds[1]}"
            seen[keys] = type(value)
            if isinstance(value, dict):
                pending.extend(((*keys, key), child) for key, child in value.items())
    return ""


def read_tree(entries: Iterable[str], roots: Sequence[Path], overlay: Source) -> tuple[list[str], list[Source]]:
    """Read files and the files they include, each once.

    A file comes after, and so overrides, everything it includes; of two listed side by side the later one overrides
    the earlier one together with its includes. A file that is named more than once is included where it came up first,
    level by level.

    Args:
        entries: the files to start from.
        roots: directories of relative names, in order; for the includes of a file, its own folder comes last.
        overlay: values of env.yaml, the program and the command line except `config_paths`, for interpolations in
            lists of includes.

    Returns:
        The names of all files in order of discovery, and their content from low to high precedence.
    """
    top = [(find(entry, roots).resolve(), entry) for entry in entries]
    waiting = list(dict(top).items())
    known = {path for path, _ in top}
    read_files: dict[Path, Source] = {}
    includes: dict[Path, list[Path]] = {}
    for path, entry in waiting:  # grows while it is walked
        source = read_files[path] = read(path, entry)
        includes[path] = []
        if CONFIG_PATHS not in source.config.keys():  # noqa: SIM118  (`in` of a DictConfig resolves the value)
            continue
        for included in listed_files(merge([source, overlay]), place([source], (CONFIG_PATHS,))):
            target = find(included, [*roots, path.parent]).resolve()
            if target not in known:
                known.add(target)
                waiting.append((target, included))
                includes[path].append(target)
    # Last to first, each file before its includes, is the order from high to low precedence.
    ordered: list[Source] = []
    pending = [path for path, _ in top]
    while pending:
        path = pending.pop()
        ordered.append(read_files[path])
        pending.extend(includes[path])
    return [entry for _, entry in waiting], ordered[::-1]
