"""What a row says of its instance: as members of SWE-bench, or as metadata of its request."""

from __future__ import annotations

from typing import Any

import msgspec

import gymq


class Instance(msgspec.Struct):
    """What the agent reads of an instance; the rest is the verifier's."""

    instance_id: str
    problem_statement: str
    base_commit: str = "HEAD"
    patch: str = ""  # the reference
    image: str | None = None

    def image_of(self, template: str | None) -> str:
        """The container image: by the template, the row's own, or that of SWE-bench with this id."""
        if template is not None:
            return template.format(instance_id=self.instance_id)
        return self.image or f"swebench/sweb.eval.x86_64.{self.instance_id.replace('__', '_1776_')}:latest".lower()


def read(row: bytes, metadata: dict[str, Any]) -> tuple[Instance, bytes]:
    """The instance of a row, and the row with the instance's members, for the verifier.

    Args:
        row: JSON text.
        metadata: of the row's request; its `instance_dict`, JSON text, and its other members are taken where the row
            has none of that name.

    Raises:
        InvalidTask: there is no instance in it.
    """
    try:
        inner = msgspec.json.decode(metadata.get("instance_dict") or "{}", type=dict[str, msgspec.Raw])
        given = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in metadata.items()}
        given.pop("instance_dict", None)
        members = given | inner | msgspec.json.decode(row, type=dict[str, msgspec.Raw])
        whole = msgspec.json.encode(members)
        return msgspec.json.decode(whole, type=Instance), whole
    except msgspec.DecodeError as error:
        raise gymq.InvalidTask(f"the row has no instance: {error}") from None
