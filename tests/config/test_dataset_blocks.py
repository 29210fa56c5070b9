"""The blocks of agents with their data sets."""

from typing import Any

import pytest

from gymq.config import Config, ConfigError
from gymq.config.dataset_blocks import dataset_blocks, find_block
from gymq.protocol.instances import Instance


def agent(name: str, *blocks: dict[str, Any]) -> Instance:
    return Instance(name, "agents", "simple_agent", {"datasets": list(blocks)})


def block(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonl_fpath": f"{name}.jsonl", **more}


def test_a_block_is_found_by_its_name_or_else_its_type() -> None:
    agents = [agent("a", block("x", "train"), block("y", "validation", num_repeats=4)), agent("b", block("x", "train"))]
    blocks = dataset_blocks(Config({}, [*agents, agent("c", block("train", "benchmark"))]))
    assert [one.num_repeats for one in blocks] == [1, 4, 1, 1]
    assert [find_block(blocks, name).agent for name in ("y", "validation", "train", "benchmark")] == [
        "a",
        "a",
        "c",
        "c",
    ]
    with pytest.raises(ConfigError, match=r"several data sets are called x: a has x \(train\), b has x \(train\)"):
        find_block(blocks, "x")
    with pytest.raises(ConfigError, match="no data set of the configuration is called z"):
        find_block(blocks, "z")
