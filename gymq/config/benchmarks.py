"""Benchmarks: configurations in folders `benchmarks/NAME`, as in NeMo Gym, each with a data set."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gymq.config.errors import ConfigError
from gymq.errors import did_you_mean
from gymq.workers import SHIPPED

FOLDER = "benchmarks"
_CONFIG = "config.yaml"


class Benchmark(NamedTuple):
    """A configuration of a benchmark.

    Attributes:
        name: name of its folder; for a file other than config.yaml, `NAME/FILE` without the extension.
        root: folder that the paths in it are relative to.
    """

    name: str
    config: Path
    root: Path


def benchmarks(search: Iterable[Path] = ()) -> list[Benchmark]:
    """Return the benchmarks of the current folder, of `search`, of gymq, and of an installed NeMo Gym.

    Of two with the same name the first is used.
    """
    found: dict[str, Benchmark] = {}
    for root in (Path(), *search, SHIPPED, *_nemo_gym()):
        for benchmark in _of_root(root):
            found.setdefault(benchmark.name, benchmark)
    return [found[name] for name in sorted(found)]


def find_benchmark(name: str, search: Sequence[Path] = ()) -> Benchmark:
    """Return the benchmark of a name.

    Raises:
        ConfigError: there is none.
    """
    for root in search:
        if not (root / FOLDER).is_dir():
            raise ConfigError(f"--search-dir {root}: expected a folder {FOLDER}/ in it")
    known = {benchmark.name: benchmark for benchmark in benchmarks(search)}
    if name not in known:
        hint = did_you_mean(name, known)
        if not known:
            hint = f"; the folder {FOLDER}/ does not exist here: pass --search-dir DIR for the folder that contains it"
        raise ConfigError(f"no benchmark is called {name}{hint or '; `gymq list benchmarks` prints them'}")
    return known[name]


def _of_root(root: Path) -> Iterator[Benchmark]:
    folder = root / FOLDER
    for config in sorted(folder.glob("*/*.yaml")) if folder.is_dir() else ():
        # A folder may have further files, such as one with and one without a search.
        if not config.stem.startswith("config"):
            continue
        name = config.parent.name if config.name == _CONFIG else f"{config.parent.name}/{config.stem}"
        yield Benchmark(name, config, root)


def _nemo_gym() -> list[Path]:
    """Return the folder of an installed NeMo Gym with its package and benchmarks, without importing it."""
    try:
        spec = importlib.util.find_spec("nemo_gym")
    except (ImportError, ValueError):
        return []
    if spec is None or spec.origin is None:
        return []
    return [Path(spec.origin).parent.parent]
