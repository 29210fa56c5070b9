"""The conversations that a program may continue by the id of a reply instead of sending them again."""

from __future__ import annotations

from typing import Any

from gymq.ext.http.errors import invalid
from gymq.responses import Item

_FIELD = "previous_response_id"


class PreviousResponses:
    """The newest replies of one rollout, each with the conversation before it."""

    def __init__(self, max_kept: int = 64) -> None:
        self._max_kept = max_kept
        self._conversations: dict[str, list[Item]] = {}

    def continued(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of a request with the whole conversation instead of an id.

        Raises:
            StatusError: no reply that is kept has the id.
        """
        name = params.get(_FIELD)
        if name is None:
            return params
        before = self._conversations.get(str(name))
        if before is None:
            known = f"no reply that is kept here has the id {str(name)[:60]!r}"
            raise invalid(f"{_FIELD}: {known}; send all items in `input`")
        kept = {field: value for field, value in params.items() if field != _FIELD}
        return {**kept, "input": [*before, *params["input"]]}

    def keep(self, conversation: list[Item], response: dict[str, Any]) -> None:
        """Keep a reply and the conversation that it continues."""
        self._conversations.pop(response["id"], None)
        self._conversations[response["id"]] = [*conversation, *response["output"]]
        if len(self._conversations) > self._max_kept:
            del self._conversations[next(iter(self._conversations))]


NONE_KEPT = PreviousResponses(max_kept=0)
"""Of callers whose rollout has no known end; an endpoint behind gymq does not know all replies that they had."""
