"""The rows of an environment: the lines of its data set, and requests for rows to generate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pydantic
from typing_extensions import TypeVar

from gymq import responses


class Row(pydantic.BaseModel):
    """One line of a data set. Subclass it to name the fields the verifier needs; others are kept.

    Types are converted in one direction: numeric text is accepted as a number, but not a number as text.
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
    """A request to a class for rows.

    Attributes:
        count: the number of rows.
        seed: the same seed gives the same rows, on any machine.
        tokens: limit on the length of each prompt, as `count_tokens` counts; None: the class decides.
        kinds: names of the class's `row_kinds`, used in turn.
        count_tokens: returns the number of tokens of a text.
    """

    count: int
    seed: int
    tokens: int | None
    kinds: tuple[str, ...]
    count_tokens: Callable[[str], int]
