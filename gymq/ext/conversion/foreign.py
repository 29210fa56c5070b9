"""Responses requests of programs, which may be of later versions of the API or leave out what it asks for."""

from __future__ import annotations

from typing import Any

from gymq.ext.conversion.items import NO_PARAMETERS
from gymq.responses.errors import MAX_NAME, warn_once
from gymq.responses.params import known_params
from gymq.responses.schema import is_item_type


def foreign_params(body: object) -> dict[str, Any]:
    """Return the request of a program as `validate_params` accepts it, without unknown fields and items.

    Items of unknown types are dropped with one warning for each type. Function tools may lack `strict` and
    `parameters`, as endpoints allow.

    Raises:
        InvalidRequest: it is not an object.
    """
    params = known_params(body)
    if isinstance(params.get("tools"), list):
        params["tools"] = [_complete(tool) for tool in params["tools"]]
    if isinstance(params.get("input"), list):
        params["input"] = [item for item in params["input"] if _is_known(item)]
    return params


def _is_known(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind is None or is_item_type(kind):
        return True
    warn_once(f"items of type {str(kind)[:MAX_NAME]!r} are dropped: they are not known here")
    return False


def _complete(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {"strict": None, **tool, "parameters": tool.get("parameters") or NO_PARAMETERS}
