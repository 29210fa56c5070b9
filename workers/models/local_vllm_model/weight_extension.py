"""Runs in each of vLLM's worker processes: takes weights that come as bytes or as one file."""

from __future__ import annotations

from typing import Any


class TakesWeights:
    """Mixed into vLLM's own worker class by the argument `worker_extension_cls`."""

    model_runner: Any

    def load_bytes(self, weights: bytes) -> None:
        """Replace the weights by those of a file in the safetensors format.

        Raises:
            SafetensorError: the bytes are not such a file.
        """
        from safetensors import torch as safetensors  # torch is missing where nothing is served

        self.model_runner.reload_weights(weights_iterator=iter(safetensors.load(weights).items()))

    def load_file(self, path: str) -> None:
        """Replace the weights by those of a file in the safetensors format; one tensor after the other is read.

        Raises:
            SafetensorError, OSError: there is no such file, or it is of another kind.
        """
        import safetensors

        with safetensors.safe_open(path, framework="pt") as file:
            names = file.keys()
            self.model_runner.reload_weights(weights_iterator=((name, file.get_tensor(name)) for name in names))
