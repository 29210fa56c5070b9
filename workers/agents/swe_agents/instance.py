"""The instance of a row: as fields of SWE-bench, or as metadata of its request."""

from __future__ import annotations

from typing import Any

import msgspec
from gymq.workers.agents.mini_swe_agent import instance as mini_swe_agent

import gymq
from gymq.protocol.decoding import UNDECODABLE

# Fields of a request's metadata that are meant for the agent.
OF_THE_INSTANCE = frozenset(
    {"problem_statement", "instance_id", "base_commit", "dataset_name", "split", "instance_dict"}
)


class Instance(mini_swe_agent.Instance):
    """An instance that also names the commit of its repository."""

    base_commit: str = "HEAD"


def read(row: bytes, metadata: dict[str, Any]) -> tuple[Instance, bytes]:
    """Return the instance of a row, and the row with the instance's fields, for the verifier.

    Args:
        row: JSON text.
        metadata: of the row's request; its `instance_dict`, JSON text, and its other fields are taken where the row
            has none of that name.

    Raises:
        InvalidTask: the row has no instance.
    """
    try:
        inner = msgspec.json.decode(metadata.get("instance_dict") or "{}", type=dict[str, msgspec.Raw])
        given = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in metadata.items()}
        given.pop("instance_dict", None)
        members = given | inner | msgspec.json.decode(row, type=dict[str, msgspec.Raw])
        whole = msgspec.json.encode(members)
        return msgspec.json.decode(whole, type=Instance), whole
    except UNDECODABLE as error:
        raise gymq.InvalidTask(f"the row has no instance: {error}") from None


def without_instance(params: dict[str, Any]) -> dict[str, Any]:
    """Create parameters as the model gets them: endpoints limit metadata, and the instance has the solution in it."""
    metadata = {name: value for name, value in (params.get("metadata") or {}).items() if name not in OF_THE_INSTANCE}
    rest = {name: value for name, value in params.items() if name != "metadata"}
    return rest | ({"metadata": metadata} if metadata else {})
