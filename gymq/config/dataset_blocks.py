"""The `datasets` blocks of agents: named rows, their number of repeats, and their origin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from gymq.config.errors import ConfigError, choices
from gymq.config.loader import Config
from gymq.protocol.instances import KIND_OF
from gymq.workers import SHIPPED

BENCHMARK = "benchmark"  # the type of a block that measures


class HubSource(NamedTuple):
    """The place of a block's rows on the Hugging Face Hub."""

    repository: str
    artifact: str | None  # a file of it; None: the split of the block's type


class DatasetBlock(NamedTuple):
    """One entry of `datasets` of an agent.

    Attributes:
        kind: `train`, `validation`, `example` or `benchmark`.
        file: path of its rows, which may not exist yet.
        roots: folders that its relative paths start from.
    """

    agent: str
    name: str
    kind: str
    file: str
    num_repeats: int
    prompt_config: str | None
    prepare_script: str | None
    source: HubSource | None
    roots: tuple[Path, ...]

    def rows(self) -> Path:
        """Return the file of its rows; if it does not exist, its future path below the current folder."""
        return self._find(self.file) or Path(self.file)

    def prompt(self) -> Path | None:
        """Return the file of its prompt.

        Raises:
            ConfigError: it does not exist.
        """
        return None if self.prompt_config is None else self._require(self.prompt_config, "prompt_config")

    def script(self) -> Path | None:
        """Return the script that makes its rows.

        Raises:
            ConfigError: it does not exist.
        """
        return None if self.prepare_script is None else self._require(self.prepare_script, "prepare_script")

    def _require(self, path: str, what: str) -> Path:
        found = self._find(path)
        if found is None:
            places = ", ".join(str(root / path) for root in self.roots)
            raise ConfigError(f"data set {self.name}: {what} {path} does not exist; looked for {places}")
        return found

    def _find(self, path: str) -> Path | None:
        """Return the file of a path; a path in a NeMo Gym checkout may be that of a shipped worker."""
        candidates = [root / path for root in self.roots]
        parts = PurePosixPath(path).parts
        if len(parts) > 2 and parts[0] in KIND_OF and ".." not in parts:
            candidates.append(SHIPPED.joinpath("workers", KIND_OF[parts[0]], *parts[1:]))
        return next((candidate for candidate in candidates if candidate.is_file()), None)


def dataset_blocks(config: Config, roots: Iterable[Path] = ()) -> list[DatasetBlock]:
    """Return the blocks of all agents, in order.

    Args:
        roots: folders that relative paths start from, in addition to the current one and that of shipped files.
    """
    folders = tuple(dict.fromkeys((Path(), *roots, SHIPPED)))
    return [
        _block(found.name, entry, folders)
        for found in config.instances
        if found.kind == "agents"
        for entry in found.options.get("datasets") or ()
    ]


def find_block(blocks: Sequence[DatasetBlock], wanted: str) -> DatasetBlock:
    """Return the block of a name, or the only one of a type.

    Raises:
        ConfigError: there is none, or several.
    """
    found = [block for block in blocks if block.name == wanted] or [block for block in blocks if block.kind == wanted]
    if len(found) > 1:
        places = ", ".join(f"{block.agent} has {block.name} ({block.kind})" for block in found)
        raise ConfigError(f"several data sets are called {wanted}: {places}; name one that is unique, or give --agent")
    if not found:
        names = [block.name for block in blocks]
        raise ConfigError(f"no data set of the configuration is called {wanted}{choices(wanted, names)}")
    return found[0]


def _block(agent: str, entry: dict[str, Any], roots: tuple[Path, ...]) -> DatasetBlock:
    source = entry.get("source") or {}
    hub = source if source.get("type") == "huggingface" else entry.get("huggingface_identifier")
    return DatasetBlock(
        agent=agent,
        name=entry["name"],
        kind=entry["type"],
        file=entry["jsonl_fpath"],
        num_repeats=entry.get("num_repeats") or 1,
        prompt_config=entry.get("prompt_config"),
        prepare_script=entry.get("prepare_script"),
        source=HubSource(hub["repo_id"], hub.get("artifact_fpath")) if hub else None,
        roots=roots,
    )
