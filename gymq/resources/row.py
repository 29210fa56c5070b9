"""The rows of an environment: what a line of its data set holds, and rows that its class is asked to make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pydantic
from typing_extensions import TypeVar

from gymq import responses


class Row(pydantic.BaseModel):
    """One line of a data set. Subclass it to name the fields the verifier needs; others are kept.

    Types are read leniently in one direction: numeric text is taken for a number, a number is not taken for text.
    """

    model_config = pydantic.ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]

    @pydantic.field_validator("responses_create_params")
    @classmethod
    def _check_params(cls, params: dict[str, Any]) -> dict[str, Any]:
        return responses.row_params(params)


RowT = TypeVar("RowT", bound=Row, default=Row)


@dataclass(frozen=True)
class RowsWanted:
    """Rows that a class is asked to make.

    Attributes:
        count: how many.
        seed: the same seed gives the same rows, on any machine.
        tokens: how long each prompt may be, as `count_tokens` counts; None: as long as the class likes.
        kinds: names of the class's `row_kinds`, for the rows in turn.
        count_tokens: returns the tokens of a text.
    """

    count: int
    seed: int
    tokens: int | None
    kinds: tuple[str, ...]
    count_tokens: Callable[[str], int]
