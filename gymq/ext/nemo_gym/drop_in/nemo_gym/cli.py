"""Starting everything from a configuration, under the names that trainers import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from gymq.ext.nemo_gym.child_cluster import ChildCluster


@dataclass
class GlobalConfigDictParserConfig:
    """Sources of the configuration. The command line of the trainer is never read."""

    dotenv_path: Path | None = None
    initial_global_config_dict: DictConfig | None = None
    skip_load_from_cli: bool = True


class RunHelper:
    """Workers and bridge in a process of their own."""

    def __init__(self) -> None:
        self._cluster: ChildCluster | None = None

    def start(self, global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None) -> None:
        """Start everything; returns when it serves.

        Raises:
            RuntimeError: it did not start; says why.
        """
        given = global_config_dict_parser_config or GlobalConfigDictParserConfig()
        initial: Any = given.initial_global_config_dict
        self._cluster = ChildCluster({} if initial is None else initial, env_yaml=given.dotenv_path)
        self._cluster.start()

    def poll(self) -> None:
        """Check that everything still serves.

        Raises:
            RuntimeError: a part does not; the message names it.
        """
        if self._cluster is None:
            raise RuntimeError("nothing was started in this process: call start() first")
        self._cluster.check()

    def shutdown(self) -> None:
        """Stop everything. May be called again."""
        if self._cluster is not None:
            self._cluster.stop()
