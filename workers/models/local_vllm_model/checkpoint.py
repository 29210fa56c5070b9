"""What a file in the safetensors format says it holds, read without loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from gymq.errors import GymqError

Shapes = dict[str, list[int]]  # of each tensor, by its name

_LENGTH_BYTES = 8  # https://huggingface.co/docs/safetensors: length of the header, little-endian; the header in JSON
_MAX_HEADER_BYTES = 100_000_000


class UnusableWeights(GymqError, ValueError):
    """Weights that the model cannot take; one sentence."""


def shapes_in(file: BinaryIO, name: str) -> Shapes:
    """Return the tensors of an open file.

    Args:
        name: of the file, for messages.

    Raises:
        UnusableWeights: it is not in the format.
    """
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    try:
        if length > _MAX_HEADER_BYTES:
            raise ValueError
        header = json.loads(file.read(length))
        return {tensor: list(about["shape"]) for tensor, about in header.items() if tensor != "__metadata__"}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UnusableWeights(f"{name} is not a file in the safetensors format") from None


def shapes_at(path: Path) -> Shapes:
    """Return the tensors of a checkpoint: of a folder's files, or of one file.

    Raises:
        UnusableWeights: they do not exist.
    """
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    if not files:
        raise UnusableWeights(f"{path} is not a .safetensors file or a folder with such files on this machine")
    shapes: Shapes = {}
    for name in files:
        with name.open("rb") as file:
            shapes |= shapes_in(file, str(name))
    return shapes


def check_fit(shapes: Mapping[str, list[int]], expected: Mapping[str, list[int]]) -> None:
    """
    Raises:
        UnusableWeights: a tensor is missing, unknown or of another shape than expected.
    """
    for tensor, shape in expected.items():
        if tensor not in shapes:
            raise UnusableWeights(f"there is no tensor {tensor} among the new weights")
        if shapes[tensor] != shape:
            raise UnusableWeights(f"the new {tensor} has the shape {shapes[tensor]}, the model's has {shape}")
    for tensor in shapes:
        if tensor not in expected:
            raise UnusableWeights(f"the model has no tensor {tensor}")
