"""ether0: chemistry questions, whose answers are checked by rules (Narayanan et al., 2025).

A row names the evaluation function. Some functions ask for more than the molecule itself: filters of plausible
molecules, or models for solubility and reactions. A row that needs one which is not there is a failure, whatever the
answer.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pydantic
from gymq.workers.resources.ether0.remotes import Remotes

import gymq
from gymq import responses
from gymq.authoring import importing
from gymq.processes import ComputeLimits, CpuTimeUsedUp

OPENING, CLOSING = "<answer>", "</answer>"
BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
BLANKS = re.compile(r"\s*")
LETTER = re.compile(r"Answer[ \t]*:[ \t]*([A-Za-z])[ \t]*$", re.MULTILINE)

SEPARATOR = "!:!"
NEED_FILTERS = frozenset({"formula_eval", "functional_group_eval", "valid_mol_eval", "sol_eval"})
NEED_REMOTES = frozenset({"sol_eval", "rxn_forward"})
SOLUBILITY_TOLERANCE = 0.49  # below the change of 0.5 that some questions ask for


class ChemistryRow(gymq.Row):
    verifier_metadata: dict[str, Any] | None = None


class Ether0(gymq.Resources[ChemistryRow]):
    """Reward 1 if the answer passes the row's evaluation function."""

    reward_range = (0.0, 1.0)
    needs = frozenset({"network"})

    compute_limits = ComputeLimits(cpu_s=60.0, timeout_s=600.0)  # a molecule that needs more processor time is wrong

    class Options(gymq.WorkerOptions):
        filters_dir: Path | None = None  # folder with ether0's rings.bloom and fingerprints.bloom
        remotes_url: str | None = None  # ether0's prediction server
        remotes_token: pydantic.SecretStr | None = None
        remotes_timeout_s: pydantic.PositiveFloat = 180.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.options
        token = options.remotes_token.get_secret_value() if options.remotes_token else None
        self.remotes = Remotes(options.remotes_url, token, options.remotes_timeout_s)
        self.filters: Any = None

    async def start(self) -> None:
        with importing("ether0"):
            from gymq.workers.resources.ether0 import evaluation, filters
        self._evaluation = evaluation
        if self.filters is None:
            self.filters = filters.PlausibilityFilters(self.options.filters_dir)
        await self.remotes.start()

    async def stop(self) -> None:
        await self.remotes.stop()

    async def verify(self, request: gymq.VerifyRequest[ChemistryRow]) -> gymq.Verdict:
        metadata = request.row.verifier_metadata or {}
        members = {"problem_type": metadata.get("problem_type") or ""}
        task = read_solution(metadata.get("solution"))
        if task is None:
            return gymq.Verdict(0.0, extracted_answer=None, eval_function=None, **members)
        function, info = task
        if function in NEED_FILTERS:
            self.filters.require()
        if function in NEED_REMOTES:
            self.remotes.require()
        choices = metadata.get("choices")
        text = responses.assistant_text(request.response)
        answer = read_answer(text, choices if isinstance(choices, dict) else None)
        right = answer is not None and await self._passes(function, answer, info)
        return gymq.Verdict(float(right), extracted_answer=answer, eval_function=function, **members)

    async def _passes(self, function: str, answer: str, info: str) -> bool:
        try:
            found = await self.compute(self._evaluation.evaluate, function, answer, info)
        except CpuTimeUsedUp:
            return False
        if not found.right or (found.words is not None and not self.filters.know(found.words)):
            return False
        if found.solubility is not None:
            predicted = await self.remotes.solubility(found.solubility.smiles)
            return abs(predicted - found.solubility.target) <= SOLUBILITY_TOLERANCE
        return found.reaction is None or await self._makes(found.reaction)

    async def _makes(self, reaction: Any) -> bool:
        for_sale = await self.remotes.purchasable(reaction.reactants)
        if not all(smiles in reaction.small or for_sale.get(smiles) for smiles in reaction.reactants):
            return False
        product = await self.remotes.product(reaction.smiles)
        same: bool = await self.compute(self._evaluation.same_molecule, product, reaction.target)
        return same


def read_solution(solution: Any) -> tuple[str, str] | None:
    """Evaluation function and what it is given; None if the row's text or object does not say."""
    if isinstance(solution, str):
        function, *rest = solution.split(SEPARATOR, 2)
        return (function, rest[0]) if len(rest) == 2 else None
    match solution:
        case {"fxn_name": str(name), "answer_info": str(info), "problem_type": str()}:
            return name, info
    return None


def read_answer(text: str, choices: dict[str, Any] | None) -> str | None:
    """Return the answer in tags, or else in a box, or else a letter at the end of a line; None if there is none.

    Args:
        choices: what the letters stand for; a letter that is none of them is an answer itself.
    """
    text = text.replace("<|answer_start|>", OPENING).replace("<|answer_end|>", CLOSING)
    answer = _tagged(text)
    if answer is None:
        boxes = BOXED.findall(text)
        letters = [] if boxes else LETTER.findall(text)
        answer = str((boxes or letters or [""])[-1]).strip() or None
    chosen = choices.get(answer.upper()) if answer is not None and choices and len(answer) == 1 else None
    return chosen if isinstance(chosen, str) else answer


def _tagged(text: str) -> str | None:
    """Return what the last pair of tags holds; nothing if that is another opening tag."""
    found, position = None, 0
    while (opening := text.find(OPENING, position)) >= 0:
        blanks = BLANKS.match(text, opening + len(OPENING))
        assert blanks is not None  # it may be empty
        start = blanks.end()
        closing = text.find(CLOSING, start + 1)  # a pair holds one character at least
        if closing < 0:
            break
        found, position = text[start:closing].rstrip(), closing + len(CLOSING)
    return None if found is None or OPENING in found else found
