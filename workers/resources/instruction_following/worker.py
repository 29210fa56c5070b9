"""instruction_following: writing instructions that a program can check.

The instructions are those of IFEval (Zhou et al., 2023) and of its extension in Open-Instruct.
"""

from __future__ import annotations

from typing import Any, Literal

import pydantic
from gymq.workers.resources.instruction_following.instructions import AsMeant, Published, check_all
from gymq.workers.resources.instruction_following.texts import ModelMissing

import gymq
from gymq.authoring import check_installed
from gymq.processes import ComputeLimits, CpuTimeUsedUp
from gymq.responses import first_text_of_last_item


class Metadata(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    instruction_id_list: list[str]
    kwargs: list[dict[str, Any] | None]  # the arguments of each instruction
    prompt: str
    grading_mode: Literal["binary", "fraction"] = "binary"


class InstructionsRow(gymq.Row):
    id: int
    verifier_metadata: Metadata

    @pydantic.model_validator(mode="before")
    @classmethod
    def _gather_metadata(cls, row: Any) -> Any:
        """Older rows have the fields of `verifier_metadata` beside it."""
        metadata = row.get("verifier_metadata") or {} if isinstance(row, dict) else None
        if not isinstance(metadata, dict):
            return row
        beside = {name: row[name] for name in Metadata.model_fields if name in row}
        return {**row, "verifier_metadata": beside | metadata}


class InstructionFollowing(gymq.Resources[InstructionsRow]):
    """Reward 1 if the text follows all instructions, or the share of those that it follows."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        hardened: bool = True  # false: the published checks, with keywords as patterns

    # Patterns of the rows may need exponential time on an unlucky text, which then follows nothing.
    compute_limits = ComputeLimits(cpu_s=20.0, timeout_s=400.0)

    async def start(self) -> None:
        check_installed("instruction-following", "langdetect", "nltk", "llama_index")
        self._rule = AsMeant() if self.options.hardened else Published()

    async def verify(self, request: gymq.VerifyRequest[InstructionsRow]) -> gymq.Verdict:
        metadata = request.row.verifier_metadata
        instructions = list(zip(metadata.instruction_id_list, metadata.kwargs, strict=False))
        text = first_text_of_last_item(request.response)
        says_something = self._rule.says_something(text)
        try:
            followed = await self.compute(check_all, self._rule, instructions, text)
        except CpuTimeUsedUp:
            followed = [False] * len(instructions)
        except ModelMissing as error:
            raise gymq.ComponentFailed(str(error)) from None
        if not says_something:
            followed = [False] * len(instructions)
        follows_all = says_something and all(followed)
        share = sum(followed) / len(followed) if followed else 0.0
        return gymq.Verdict(
            share if metadata.grading_mode == "fraction" else float(follows_all),
            follow_all_instructions=follows_all,
            follow_instruction_list=followed,
            verifier_metadata=metadata.model_dump(exclude_unset=True),
        )
