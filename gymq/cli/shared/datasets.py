"""The data sets that a configuration or a benchmark names."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gymq.cli.shared.parameters import WorkerSources
from gymq.config import Config
from gymq.config.benchmarks import find_benchmark
from gymq.config.dataset_blocks import BENCHMARK, DatasetBlock, dataset_blocks, find_block
from gymq.errors import UsageError
from gymq.extensions import extensions


def blocks_of(config: Config, sources: WorkerSources) -> list[DatasetBlock]:
    """Return the data sets of a configuration; paths in that of a benchmark are relative to its root."""
    roots = [] if sources.benchmark is None else [find_benchmark(sources.benchmark, sources.search_dir).root]
    return dataset_blocks(config, roots)


def chosen_block(config: Config, sources: WorkerSources, dataset: str | None, agent: str | None) -> DatasetBlock:
    """Return the data set of a collection: the one with this name or type, or that of the benchmark."""
    blocks = [block for block in blocks_of(config, sources) if agent in (None, block.agent)]
    return find_block(blocks, dataset or BENCHMARK)


def ready_rows(block: DatasetBlock) -> Path:
    """Return the file of a data set's rows; the entry point `gymq.preparations` makes it now if it is not there.

    Raises:
        UsageError: it is not there and cannot be made.
    """
    rows = block.rows()
    if rows.is_file():
        return rows
    found = extensions("preparations")
    if not found:
        raise UsageError(f"{block.file} does not exist, and no package has the entry point gymq.preparations")
    made: Path = asyncio.run(found[0].load()(block))
    return made
