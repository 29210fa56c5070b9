"""Images and videos, which NeMo RL's own functions read."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from gymq.data.rows import PARAMS
from gymq.trainer.groups import Row

IMAGE_PARTS = ("input_image", "image", "image_url")
MEDIA_PARTS = (*IMAGE_PARTS, "input_video", "video", "video_url")
IMAGE_DATA = "data:image/"


def embed_media(rows: Sequence[Row]) -> None:
    """Put the images and videos that rows name by a path into the rows, as NeMo RL does it itself."""
    if any(part.get("type") in MEDIA_PARTS for row in rows for part in _parts_in(row[PARAMS].get("input"))):
        environment: Any = importlib.import_module("nemo_rl.environments.nemo_gym")
        name = "normalize_media_in_examples"  # the name since September 2026
        embed = getattr(environment, name, None) or environment.encode_images_in_examples
        embed(rows)


def images_before(full: Row) -> list[list[str]]:
    """Return, for each item with tokens, the images of the conversation since the one before."""
    response = full["response"]
    source = response.get("seed_obs") or response.get("agent_input") or full[PARAMS].get("input")
    images: list[list[str]] = []
    waiting = list(_sources_in(source))
    for item in response["output"]:
        if item.get("generation_token_ids"):
            images.append(waiting)
            waiting = []
        else:
            waiting += _sources_in([item])
    return images


def _sources_in(items: Any) -> Iterator[str]:
    """Yield the images of items that the policy did not write.

    The output of a tool is an image if it is one; unlike NeMo RL, this fetches no address that a tool names.
    """
    for item in items if isinstance(items, list) else ():
        output = item.get("output")
        if isinstance(output, str) and output.startswith(IMAGE_DATA):
            yield output
        for part in _parts_in([item]) if item.get("role") != "assistant" else ():
            if part.get("type") in IMAGE_PARTS:
                source = part.get("image") or part.get("image_url") or part.get("url")
                source = source.get("url") if isinstance(source, dict) else source
                if isinstance(source, str):
                    yield source


def _parts_in(items: Any) -> Iterator[Row]:
    for item in items if isinstance(items, list) else ():
        content = item.get("content")
        yield from (part for part in content if isinstance(part, dict)) if isinstance(content, list) else ()
