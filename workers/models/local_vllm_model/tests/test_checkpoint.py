from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from gymq.workers.models.local_vllm_model.checkpoint import UnusableWeights, check_fit, shapes_at, shapes_in


def safetensors(**shapes: list[int]) -> bytes:
    header = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text


def test_the_header_says_names_and_shapes():
    assert shapes_in(io.BytesIO(safetensors(a=[2, 3], b=[])), "x") == {"a": [2, 3], "b": []}


@pytest.mark.parametrize("content", [b"", b"nonsense", (2**40).to_bytes(8, "little"), b"\x02" + bytes(7) + b"[]"])
def test_another_kind_of_file_is_told(content: bytes):
    with pytest.raises(UnusableWeights, match=r"x\.bin is not a file in the safetensors format"):
        shapes_in(io.BytesIO(content), "x.bin")


def test_a_checkpoint_may_have_several_files(tmp_path: Path):
    (tmp_path / "1.safetensors").write_bytes(safetensors(a=[1]))
    (tmp_path / "2.safetensors").write_bytes(safetensors(b=[2]))
    assert shapes_at(tmp_path) == {"a": [1], "b": [2]}


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"a": [1]}, "there is no tensor b among the new weights"),
        ({"a": [1], "b": [3]}, r"the new b has the shape \[3\], the model's has \[2\]"),
        ({"a": [1], "b": [2], "c": [1]}, "the model has no tensor c"),
    ],
)
def test_what_does_not_fit_is_named(new: dict[str, list[int]], message: str):
    with pytest.raises(UnusableWeights, match=message):
        check_fit(new, {"a": [1], "b": [2]})
