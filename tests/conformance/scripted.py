"""A judge model and external components that answer from a case's script and record what they were asked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gymq.failures import JudgeFailed
from gymq.responses import InvalidReply, validate_response
from gymq.testing import reply


@dataclass
class _JudgeReply:
    when: dict[str, Any]
    reply: Any
    used: bool = False


class ScriptedJudge:
    """Answers the judge calls of one case.

    A call takes the first unused reply whose `when` agrees with it; a reply without `when` agrees with every call.
    """

    def __init__(self, replies: list[Any]) -> None:
        self.calls: list[dict[str, Any]] = []
        self.unscripted_calls = 0
        self._replies = [_read_reply(element) for element in replies]

    async def respond(self, _model: str, params: dict[str, Any]) -> dict[str, Any]:
        """The scripted answer to one request.

        Raises:
            JudgeFailed: the script says so, or has no reply for this call.
        """
        self.calls.append(params)
        for scripted in self._replies:
            if not scripted.used and _agrees(scripted.when, params):
                scripted.used = True
                return _answer(scripted.reply)
        self.unscripted_calls += 1
        raise JudgeFailed("the case has no reply for this judge call")

    @property
    def prompts(self) -> list[str]:
        """The text of every user message sent to the judge, in call order."""
        return [text for params in self.calls for role, text in _messages(params) if role == "user"]


@dataclass
class ScriptedComponents:
    """Answers the calls to the external components of one case, for each component in call order."""

    replies: list[dict[str, Any]]
    calls: list[dict[str, Any]] = field(default_factory=list)
    unscripted_calls: list[str] = field(default_factory=list)
    _position: dict[str, int] = field(default_factory=dict)

    def next(self, component: str, call: dict[str, Any], failure: Callable[[str], Exception]) -> dict[str, Any]:
        """Record `call` and return the next reply of `component`.

        Args:
            failure: makes the exception to raise when the case has no reply left.
        """
        self.calls.append(call)
        replies = self._of(component)
        position = self._position.get(component, 0)
        self._position[component] = position + 1
        if position >= len(replies):
            self.unscripted_calls.append(component)
            raise failure(f"the case has no reply for this call of {component}")
        return replies[position]

    def constant(self, component: str) -> dict[str, Any] | None:
        """What a component answers to every call, or None if the case does not say."""
        replies = self._of(component)
        return replies[0] if replies else None

    def _of(self, component: str) -> list[dict[str, Any]]:
        return [element for element in self.replies if element.get("component") == component]


def _read_reply(element: Any) -> _JudgeReply:
    if isinstance(element, dict) and "when" in element:
        return _JudgeReply(element["when"], element["reply"])
    return _JudgeReply({}, element)


def _answer(scripted: Any) -> dict[str, Any]:
    if isinstance(scripted, str):
        return reply(scripted)
    if "output" in scripted:
        return reply(*scripted["output"])
    if "raise" in scripted:
        raise JudgeFailed(scripted["raise"])
    if scripted["status"] >= 400:
        raise JudgeFailed(f"the judge answered with status {scripted['status']}: {scripted['body']}")
    try:
        return validate_response(scripted["body"])
    except InvalidReply as error:
        raise JudgeFailed(f"the judge's reply is not a Responses object: {error}") from None


def _agrees(when: dict[str, Any], params: dict[str, Any]) -> bool:
    for key, wanted in when.items():
        if key == "contains":
            text = "".join(text for _, text in _messages(params))
            if not all(part in text for part in wanted):
                return False
        elif (params.get("metadata") or {}).get(key) != wanted:
            return False
    return True


def _messages(params: dict[str, Any]) -> list[tuple[str, str]]:
    """Role and text of each input message."""
    given = params["input"]
    if isinstance(given, str):
        return [("user", given)]
    return [(item["role"], _text(item["content"])) for item in given if "role" in item]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
