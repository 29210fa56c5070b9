"""example_multi_step: look up the value of each synonym of a term, then hand in the values in the given order.

The reward is exact: the last list handed in has to equal the expected one. What the tools answered does not count, only
what the response says was handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import pydantic

import gymq
from gymq.protocol.decoding import UNDECODABLE

# A verdict can hold integers of 64 bits.
INTEGERS = pydantic.TypeAdapter(list[Annotated[int, pydantic.Field(ge=-(2**63), le=2**63 - 1)]])
Value = bool | Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float | str


class SynonymRow(gymq.Row):
    id: int
    expected_synonym_values: list[int]
    expected_synonyms: list[str]
    minefield_label: str
    minefield_label_value: int


class HandIn(msgspec.Struct):
    """Arguments of `extract_synonym_values` as the model wrote them: unlike the tool, the verdict converts nothing."""

    synonym_values: list[Value]


class Synonyms(gymq.Resources[SynonymRow]):
    """Reward 1 if the last submitted list equals the expected list, in the same order."""

    reward_range = (0.0, 1.0)

    @gymq.tool
    async def get_synonym_value(self, synonym: str) -> dict[str, int]:
        """The value of a synonym."""
        return {"synonym_value": sum(map(ord, synonym))}

    @gymq.tool
    async def extract_synonym_values(self, synonym_values: list[int]) -> dict[str, bool]:
        """Hand in the values of all synonyms, in the order of the synonyms."""
        return {"success": True}

    async def verify(self, request: gymq.VerifyRequest[SynonymRow]) -> gymq.Verdict:
        row = request.row
        expected = row.expected_synonym_values
        handed_in = last_values(request.function_calls)
        values = handed_in or []
        accurate = handed_in is not None and values == expected
        overlap = len(set(values) & set(expected)) / len(expected) if expected else float(not values)
        return gymq.Verdict(
            float(accurate),
            parsed_synonym_values=as_integers(values),
            accuracy=accurate,
            set_overlap=overlap,
            original_term_minefield_hit=row.minefield_label in values or row.minefield_label_value in values,
            order_instruction_following_failure=not accurate and overlap == 1.0,
        )


def last_values(calls: Sequence[Mapping[str, Any]]) -> list[Value] | None:
    """Return the values of the last call that hands some in: empty if there is none, None if it cannot be read."""
    hand_ins = [call for call in calls if call["name"] == "extract_synonym_values"]
    if not hand_ins:
        return []
    try:
        return msgspec.json.decode(hand_ins[-1].get("arguments") or "", type=HandIn).synonym_values
    except UNDECODABLE:
        return None


def as_integers(values: list[Value]) -> list[Value] | list[int]:
    """Return the values as the tool takes them.

    They stay as they were written if one of them is not an integer of 64 bits.
    """
    try:
        return INTEGERS.validate_python(values)
    except pydantic.ValidationError:
        return values
