"""Ids of calls that are unique in a conversation: programs take two calls of one id for the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gymq.responses.items import Item, new_id

_REPEATED = re.compile(r"_again\d+$")


def with_unique_call_ids(output: Sequence[Item], conversation: Iterable[Mapping[str, Any]]) -> list[Item]:
    """Return the items of a reply with ids that occur neither in the conversation before it nor twice in the reply.

    Some engines count calls anew in each reply, or give one id to all of them. `with_ids_of_engine` restores theirs.
    """
    known = [(item.get("id"), item.get("call_id")) for item in conversation]
    ids, calls = {id_ for id_, _ in known}, {call_id for _, call_id in known}
    unique = []
    for item in output:
        given = item.get("call_id")
        if isinstance(given, str) and given in calls:
            call_id = next(name for n in range(2, len(calls) + 3) if (name := f"{given}_again{n}") not in calls)
            item = {**item, "call_id": call_id, **({"id": call_id} if item.get("id") == given else {})}
        if item.get("id") is not None and item["id"] in ids:
            item = {**item, "id": new_id("item")}
        ids.add(item.get("id"))
        calls.add(item.get("call_id"))
        unique.append(item)
    return unique


def with_ids_of_engine(items: Iterable[Item]) -> list[Item]:
    """Return items of a conversation with the ids of calls as the engine gave them."""
    return [
        {**item, "call_id": _REPEATED.sub("", call_id)}
        if isinstance(call_id := item.get("call_id"), str) and _REPEATED.search(call_id)
        else item
        for item in items
    ]
