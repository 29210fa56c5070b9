"""Audio that a request brings or names in its `metadata`, as data URIs."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymq.responses import InvalidRequest

AUDIO_MEMBERS = ("audio_data", "audio_path", "audio_paths")

_MEDIA_TYPES = {
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".mp3": "audio/mpeg",
    ".m4a": "audio/mp4",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
}


async def audio_urls(metadata: Mapping[str, Any] | None, root: Path | None) -> list[str]:
    """Return the data URIs of the audio in `metadata`, in order; empty if there is none.

    Args:
        root: folder that the named files lie in; files elsewhere are refused, for rows are not to read this machine.

    Raises:
        InvalidRequest: more than one of the fields is set, or a file cannot be used.
    """
    given = {name: (metadata or {})[name] for name in AUDIO_MEMBERS if (metadata or {}).get(name) is not None}
    if not given:
        return []
    if len(given) > 1:
        raise InvalidRequest("metadata", f"{' and '.join(given)} together; give audio in one way")
    ((member, value),) = given.items()
    where = f"metadata.{member}"
    if member == "audio_data":
        if not isinstance(value, str) or not value.startswith("data:"):
            raise InvalidRequest(where, "expected a data URI, such as data:audio/wav;base64,...")
        return [value]
    paths = _file_list(value, where) if member == "audio_paths" else [value]
    return [await asyncio.to_thread(_read, path, root, where) for path in paths]


def _file_list(value: Any, where: str) -> list[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, list) or not value:
        raise InvalidRequest(where, "expected a list of files, or the JSON text of one")
    return value


def _read(path: Any, root: Path | None, where: str) -> str:
    if not isinstance(path, str):
        raise InvalidRequest(where, f"expected the path of a file, got {type(path).__name__}")
    media_type = _MEDIA_TYPES.get(Path(path).suffix.lower())
    if media_type is None:
        raise InvalidRequest(where, f"{path}: not a known kind of audio; expected {', '.join(_MEDIA_TYPES)}")
    if root is None:
        raise InvalidRequest(where, f"{path}: the model worker has no audio_root to look for files in")
    try:
        file = (root / path).resolve()
        data = file.read_bytes() if file.is_relative_to(root.resolve()) else None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidRequest(where, f"{path}: cannot be read: {reason}") from None
    if data is None:
        raise InvalidRequest(where, f"{path}: outside of audio_root")
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
