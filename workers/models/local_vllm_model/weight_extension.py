"""Runs in each of vLLM's worker processes: takes weights that come as bytes."""

from __future__ import annotations

from typing import Any


class TakesWeights:
    """Mixed into vLLM's own worker class by the argument `worker_extension_cls`."""

    model_runner: Any

    def load_bytes(self, weights: bytes) -> None:
        """Replace the weights by those of a file in the safetensors format.

        Raises:
            SafetensorError: the bytes are no such file.
        """
        from safetensors import torch as safetensors  # there is no torch where nothing is served

        self.model_runner.reload_weights(weights_iterator=iter(safetensors.load(weights).items()))
