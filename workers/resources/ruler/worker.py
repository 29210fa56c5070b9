"""ruler: the 13 synthetic tasks of RULER over long contexts. The reply has to contain the references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pydantic

import gymq
from gymq.ext.text import Words
from gymq.responses import conclusion

# A reply needs any of the references in these, and its share of them in the others.
ANY_OF = ("qa_1", "qa_2")

SUBSETS = (
    *("niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3"),
    *("niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", *ANY_OF),
)


class RulerRow(gymq.Row):
    outputs: Annotated[list[str], pydantic.Field(min_length=1)]  # the references
    length: int  # tokens of the sample
    subset: str


class Ruler(gymq.Resources[RulerRow]):
    """Reward is the share of the references that the reply contains, in any case; for questions 1 for any of them."""

    reward_range = (0.0, 1.0)
    row_kinds = tuple(subset for subset in SUBSETS if subset not in ANY_OF)  # those need SQuAD and HotpotQA

    class Options(gymq.WorkerOptions):
        hardened: bool = True  # false: references inside of words and numbers count, as published

    @classmethod
    def make_rows(cls, wanted: gymq.RowsWanted) -> Iterator[dict[str, Any]]:
        """Make rows of the subsets that need no data of others."""
        from gymq.workers.resources.ruler.generate import make_rows

        return make_rows(wanted)

    async def start(self) -> None:
        self._found = whole_words if self.options.hardened else substrings

    async def verify(self, request: gymq.VerifyRequest[RulerRow]) -> gymq.Verdict:
        row = request.row
        found = self._found(request.reply_text, row.outputs)
        reward = float(any(found)) if row.subset in ANY_OF else sum(found) / len(found)
        # A field for each subset, so that its mean is that of its own rows.
        return gymq.Verdict(reward, **({row.subset: reward} if row.subset in SUBSETS else {}))


def whole_words(reply: str, references: list[str]) -> list[bool]:
    """Return for each reference whether it stands by itself behind the thoughts, as a word, a name or a number."""
    words = Words(conclusion(reply))
    return [reference in words for reference in references]


def substrings(reply: str, references: list[str]) -> list[bool]:
    """Return for each reference whether the reply has it, also inside words and numbers and in thoughts."""
    reply = reply.strip().lower()
    return [reference.lower() in reply for reference in references]
