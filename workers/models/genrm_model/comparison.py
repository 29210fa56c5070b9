"""The messages with which a generative reward model is shown the answers to compare."""

from __future__ import annotations

from typing import Any

PRINCIPLE = "principle"
ANSWERS = ("response_1", "response_2")


def comparison_body(body: dict[str, Any], *, supports_principle_role: bool) -> dict[str, Any]:
    """A chat body whose `metadata` has become messages: a criterion, then the answers, each in a role of its own.

    Args:
        body: a prepared chat body; it is not changed.
        supports_principle_role: whether the model's chat template knows the role of the criterion.
    """
    metadata = body.get("metadata") or {}
    shown = [name for name in ANSWERS if metadata.get(name) is not None]
    if supports_principle_role and metadata.get(PRINCIPLE):
        shown.insert(0, PRINCIPLE)
    messages = [*body["messages"], *({"role": name, "content": metadata[name]} for name in shown)]
    return {**{name: value for name, value in body.items() if name != "metadata"}, "messages": messages}
