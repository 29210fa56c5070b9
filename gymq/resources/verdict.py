"""The input and the output of a verifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, SupportsFloat

from typing_extensions import TypeVar

from gymq import responses
from gymq.resources.row import Row

RowT_co = TypeVar("RowT_co", bound=Row, default=Row, covariant=True)
StateT_co = TypeVar("StateT_co", default=Any, covariant=True)


@dataclass
class VerifyRequest(Generic[RowT_co, StateT_co]):
    """The input of a verifier.

    Attributes:
        row: the row of the data set, as the class's row type.
        response: the Responses object of the whole rollout, with the items of all turns.
        state: the state of the session; None if the session was never seeded and never called.
    """

    row: RowT_co
    response: responses.Response
    state: StateT_co | None = None

    @property
    def reply_text(self) -> str:
        """All output texts of all messages, concatenated."""
        return responses.output_text(self.response)

    @property
    def function_calls(self) -> list[responses.FunctionCall]:
        """The calls the model made, in order."""
        return responses.function_calls(self.response)


class Verdict:
    """A reward, and further fields: they reach the result row, the statistics and the viewer."""

    __slots__ = ("fields", "reward")

    def __init__(self, reward: float, **fields: Any) -> None:
        """Set the reward.

        Args:
            reward: within the `reward_range` of the environment.
            fields: details that explain it, as JSON values; numbers are included in statistics.

        Raises:
            TypeError, ValueError: the reward is not a number.
        """
        if isinstance(reward, str | bytes):
            raise TypeError(f"a reward must be a number, not {reward!r:.80}")
        self.reward = float(reward)
        self.fields = fields

    def __repr__(self) -> str:
        fields = "".join(f", {name}={value!r}" for name, value in self.fields.items())
        return f"Verdict(reward={self.reward}{fields})"


Judged = Verdict | SupportsFloat
"""The return type of `verify`: a verdict, or a number that is the reward."""
