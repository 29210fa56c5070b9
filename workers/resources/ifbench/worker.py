"""ifbench: writing rules that a program can check, others than those of instruction_following."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pydantic
from gymq.workers.resources.ifbench.checking import check_all
from gymq.workers.resources.instruction_following.texts import ModelMissing, prepare

import gymq
from gymq.authoring import check_installed
from gymq.processes import ComputeLimits, CpuTimeUsedUp
from gymq.responses import first_text_of_last_item

Mode = Literal["fraction", "binary"]


class RulesRow(gymq.Row):
    id: int
    instruction_id_list: list[str]
    kwargs: list[Any]  # the arguments of each rule, an object or null
    prompt: str
    grading_mode: Mode = "fraction"


class IfBench(gymq.Resources[RulesRow]):
    """Reward is the share of the rules that the text follows, or 1 if it follows all."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        num_processes: pydantic.PositiveInt = 32  # verifications at a time
        hardened: bool = True  # false: the published checks

    # A long text is cut into tokens once for each rule and variant; one that takes longer follows nothing.
    compute_limits = ComputeLimits(cpu_s=60.0, timeout_s=900.0, prepare=prepare)

    async def start(self) -> None:
        check_installed("instruction-following", "emoji", "nltk", "llama_index", "syllapy")
        self._rule_set = "as meant" if self.options.hardened else "published"
        self._slots = asyncio.Semaphore(self.options.num_processes)

    async def verify(self, request: gymq.VerifyRequest[RulesRow]) -> gymq.Verdict:
        row = request.row
        text = first_text_of_last_item(request.response)
        if text.strip():
            rules = list(zip(row.instruction_id_list, row.kwargs, strict=False))
            strict, loose = await self._followed(rules, text)
        else:
            strict = loose = [False] * len(row.instruction_id_list)
        return gymq.Verdict(
            reward(strict, row.grading_mode),
            follow_all_instructions=all(strict),
            follow_instruction_list=strict,
            reward_loose=reward(loose, row.grading_mode),
            follow_all_instructions_loose=all(loose),
            follow_instruction_list_loose=loose,
        )

    async def _followed(self, rules: list[tuple[str, Any]], text: str) -> tuple[list[bool], list[bool]]:
        async with self._slots:
            try:
                return await self.compute(check_all, self._rule_set, rules, text)
            except (CpuTimeUsedUp, MemoryError):
                return [False] * len(rules), [False] * len(rules)
            except ModelMissing as error:
                raise gymq.ComponentFailed(str(error)) from None


def reward(followed: list[bool], mode: Mode) -> float:
    """Return the reward for the rules that are followed, from 0 to 1."""
    if mode == "binary":
        return float(all(followed))
    return sum(followed) / len(followed) if followed else 0.0
