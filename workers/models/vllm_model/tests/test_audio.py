"""Audio that requests bring or name."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.vllm_model.audio import audio_urls

from gymq.responses import InvalidRequest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "audio"
    folder.mkdir()
    for name in ("a.wav", "b.MP3", "c.opus", "d.txt"):
        (folder / name).write_bytes(name.encode())
    (tmp_path / "outside.wav").write_bytes(b"secret")
    return folder


def uri(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("metadata", [None, {}, {"x": "y"}, {"audio_path": None}])
async def test_a_request_without_audio_has_none(metadata: Any) -> None:
    assert await audio_urls(metadata, None) == []


async def test_a_data_uri_is_taken_as_it_is() -> None:
    assert await audio_urls({"audio_data": "data:audio/wav;base64,AA=="}, None) == ["data:audio/wav;base64,AA=="]


async def test_files_become_data_uris_in_order(root: Path) -> None:
    assert await audio_urls({"audio_path": "a.wav"}, root) == [uri("audio/wav", b"a.wav")]
    expected = [uri("audio/ogg", b"c.opus"), uri("audio/mpeg", b"b.MP3")]
    assert await audio_urls({"audio_paths": '["c.opus", "b.MP3"]'}, root) == expected
    assert await audio_urls({"audio_paths": ["c.opus", str(root / "b.MP3")]}, root) == expected


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        ({"audio_data": "AA=="}, "metadata.audio_data: expected a data URI"),
        ({"audio_data": "data:,", "audio_path": "a.wav"}, "audio_data and audio_path together"),
        ({"audio_path": "d.txt"}, "d.txt: not a known kind of audio"),
        ({"audio_path": "none.wav"}, "none.wav: cannot be read: No such file"),
        ({"audio_path": "../outside.wav"}, "outside of audio_root"),
        ({"audio_path": "a\0.wav"}, "cannot be read"),
        ({"audio_path": 7}, "expected the path of a file"),
        ({"audio_paths": "a.wav"}, "expected a list of files"),
        ({"audio_paths": "[]"}, "expected a list of files"),
    ],
)
async def test_what_cannot_be_used_is_refused(root: Path, metadata: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidRequest, match=fault):
        await audio_urls(metadata, root)


async def test_a_link_does_not_lead_out_of_the_folder(root: Path) -> None:
    (root / "link.wav").symlink_to(root.parent / "outside.wav")
    with pytest.raises(InvalidRequest, match="outside of audio_root"):
        await audio_urls({"audio_path": "link.wav"}, root)


async def test_files_need_a_folder() -> None:
    with pytest.raises(InvalidRequest, match="no audio_root"):
        await audio_urls({"audio_path": "/a.wav"}, None)
