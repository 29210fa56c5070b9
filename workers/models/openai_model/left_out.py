"""Fields that an endpoint refuses and on which nothing that is sampled depends: they are left out of later requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gymq.workers.models.openai_model.refusal import UNFIT, Refused

from gymq.responses.errors import warn_once

_NOT_SAMPLED = frozenset(
    {
        "include",
        "metadata",
        "priority",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "user",
    }
)
# Without the field an endpoint does the same.
_DEFAULTS = {"parallel_tool_calls": True, "stream": False, "tool_choice": "auto", "truncation": "disabled"}
_STRICT = "strict"  # of a tool: an endpoint that does not know it would not hold the model to the schema either
_CURES = {"priority": "; vLLM takes it with --scheduling-policy priority"}
_LENGTH, _NEWER_LENGTH = "max_tokens", "max_completion_tokens"
_NOT_SETTINGS = frozenset({"input", "instructions", "messages", "model", "prompt", "text", "tools"})
_UNKNOWN = re.compile(
    r"unsupported|not support|does not exist|unknown|unrecogni[sz]ed|unexpected|extra|not permitted|not allowed"
    r"|scheduling is not enabled|cannot find|invalid (field|parameter|argument|param)|additional propert",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_PLACE = re.compile(r"""['"]?loc['"]?: ?[(\[]([^)\]]{0,200})""")


class LeftOut:
    """What one endpoint is not sent, by the path that was asked."""

    def __init__(self) -> None:
        self._of_path: dict[str, set[str]] = {}

    def sendable(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a body without the fields that the endpoint has refused there."""
        return _without(body, self._of_path.get(path, ()))

    def learn(self, path: str, sent: Mapping[str, Any], refused: Refused) -> bool:
        """Return whether a refusal names a field of the body that can be left out; it is left out from then on.

        One that names none gets a sentence about what can be done.

        Args:
            sent: the body as `sendable` returned it, so that no field is found twice.
        """
        if refused.status not in UNFIT:
            return False
        named = _named(refused.reason)
        for name in sorted(named):
            if _without(sent, {name}) != sent and (name != _LENGTH or _NEWER_LENGTH in named):
                said = f"{path}: the endpoint refuses the field {name!r}, which is left out: no reply depends on it"
                warn_once(said + _CURES.get(name, ""))
                self._of_path.setdefault(path, set()).add(name)
                return True
        refused.advise(_cure(sorted(named & sent.keys() - _NOT_SETTINGS)))
        return False


def _cure(settings: list[str]) -> str:
    """Return what can be done about a refusal that names these settings of the request."""
    if settings:
        return (
            f"without {', '.join(settings)} something else would be sampled, so take it out of the rows' "
            "`responses_create_params` or of the model's options yourself"
        )
    return "change what the rows ask for in `responses_create_params`, or the model's options (`dialect`, `extra_body`)"


def _named(said: str) -> set[str]:
    """Return the words among which a refusal names the fields that the endpoint does not know."""
    if not _UNKNOWN.search(said):
        return set()
    places = _PLACE.findall(said)  # beside them, some engines repeat the request
    return set(_WORD.findall(" ".join(places) or said))


def _without(body: Mapping[str, Any], names: set[str] | tuple[str, ...]) -> dict[str, Any]:
    """Return a body without fields, as far as leaving them out changes nothing."""
    kept = dict(body)
    for name in names:
        if name == _LENGTH and name in kept:
            kept[_NEWER_LENGTH] = kept.pop(name)
        elif name == _STRICT and isinstance(tools := kept.get("tools"), list):
            kept["tools"] = [_without_strict(tool) for tool in tools]
        elif name in kept and (name in _NOT_SAMPLED or (name in _DEFAULTS and kept[name] == _DEFAULTS[name])):
            del kept[name]
    return kept


def _without_strict(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    kept = {name: value for name, value in tool.items() if name != _STRICT}
    return {**kept, "function": _without_strict(kept["function"])} if "function" in kept else kept
