"""A model that takes new weights: it reads all of them, from a file or as they came, and keeps nothing."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import gymq


class LoadingModel(gymq.Model):
    """Answers with the digest of its weights."""

    digest = ""

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        return {"output": [], "metadata": {"digest": self.digest}}

    async def load_weights(self, update: gymq.WeightsUpdate) -> None:
        self.digest = await asyncio.to_thread(_digest, update)


def _digest(update: gymq.WeightsUpdate) -> str:
    if update.weights is not None:
        return hashlib.blake2b(update.weights).hexdigest()
    assert update.path is not None
    with Path(update.path).open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
