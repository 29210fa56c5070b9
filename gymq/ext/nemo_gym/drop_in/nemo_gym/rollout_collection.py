"""Rows over HTTP, under the name that trainers import."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any

from gymq.ext.nemo_gym.client import run_examples
from gymq.ext.shared.addresses import reachable


class RolloutCollectionHelper:
    """Rolls out rows through the head server."""

    def run_examples(
        self, examples: list[dict[str, Any]], head_server_config: Any, semaphore: asyncio.Semaphore | None = None
    ) -> Iterator[Awaitable[tuple[dict[str, Any], dict[str, Any]]]]:
        """Return awaitables of `(row, result)` in the order in which results arrive, failed rows last."""
        url = f"http://{reachable(head_server_config.host)}:{head_server_config.port}"
        return run_examples(url, examples, limit=semaphore)
