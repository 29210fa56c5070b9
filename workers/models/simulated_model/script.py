"""Scripts: the replies of the policy in the rollouts of a row, turn by turn. They are in the row's metadata."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

import gymq
from gymq.protocol.decoding import UNDECODABLE

SOLUTION = "simulated_solution"
MISTAKE = "simulated_mistake"


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """A function call. Arguments that are a text are sent as they are, so that broken JSON can be tried."""

    name: str
    arguments: Any = {}

    def arguments_text(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()


class Action(msgspec.Struct, forbid_unknown_fields=True):
    """One output item: a call or a text."""

    call: Call | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if (self.call is None) == (self.text is None):
            raise ValueError("an action needs either `call` or `text`")


Turn = Annotated[list[Action], msgspec.Meta(min_length=1)]
Script = Annotated[list[Turn], msgspec.Meta(min_length=1)]

_DEFAULT_MISTAKE: Script = [[Action(text="I do not know.")]]
_AFTER_THE_END: Turn = [Action(text="That is all.")]

_FORM = 'a script is a list of turns, each a list of {"text": ...} or {"call": {"name": ..., "arguments": ...}}'

_decode = msgspec.json.Decoder(Script).decode


def read_script(metadata: dict[str, Any], *, succeeds: bool) -> Script:
    """Return the turns of the solution or of the mistake. A mistake need not be given.

    Raises:
        RolloutError: the row's script cannot be read; trying again does not help.
    """
    member = SOLUTION if succeeds else MISTAKE
    text = metadata.get(member)
    if text is None and not succeeds:
        return _DEFAULT_MISTAKE
    if not isinstance(text, str):
        raise _unreadable(member, "expected JSON text")
    try:
        return _decode(text)
    except UNDECODABLE as error:
        raise _unreadable(member, f"{error}; {_FORM}") from None


def turn_at(script: Script, position: int) -> Turn:
    """Return the reply of turn `position`, counted from 0; past the end a closing text, so that a loop ends."""
    return script[position] if position < len(script) else _AFTER_THE_END


def _unreadable(member: str, reason: str) -> gymq.RolloutError:
    return gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, f"metadata.{member}: {reason}", retryable=False)
