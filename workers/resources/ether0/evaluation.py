"""The evaluation functions of ether0 (Narayanan et al., 2025), as far as they need nothing but the molecules.

They run in a process. What else has to be asked is in the result.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gymq.workers.resources.ether0.molecules import (
    Words,
    canonical,
    largest_part,
    similarity,
    size_difference,
    words_of,
)
from rdkit import Chem
from rdkit.Chem.rdMolDescriptors import CalcMolFormula

CLOSE = 0.7  # similarity of molecules that count as alike
MAX_SIZE_DIFFERENCE = 0.2
MAX_CHARACTERS = 5_000  # of an answer; rdkit recurses along a chain, and a long one ends the process
SMALL_ATOMS = 4  # solvents and counter-ions can be bought

SUPERSCRIPT = re.compile(r"\^\{([\d,]+)\}")
ITALIC_LETTER = re.compile(r"\{([a-zA-Z])\}")
NEEDLESS_BRACKETS = re.compile(r"([-\d])[(\[{]([A-Za-z0-9]+)[)\]}]-")
SMILES_CHARACTER = r"[a-zA-Z0-9@+\-\[\]()\\/%=#$.]"
REACTION = re.compile(rf"[^Jj]{SMILES_CHARACTER}{{6,}}>{SMILES_CHARACTER}*>")


@dataclass(frozen=True)
class Solubility:
    """The molecule whose solubility has to be asked, and what it should be."""

    smiles: str
    target: float  # logarithm


@dataclass(frozen=True)
class Reaction:
    """The reaction whose product has to be asked, and what has to be for sale."""

    smiles: str
    target: str
    reactants: list[str]
    small: list[str]  # those that count as purchasable anyway


@dataclass(frozen=True)
class Finding:
    """Whether an answer is right so far, and what has to be asked yet."""

    right: bool
    words: Words | None = None
    solubility: Solubility | None = None
    reaction: Reaction | None = None


WRONG = Finding(False)


def evaluate(function: str, answer: str, info: str) -> Finding:
    """Judge an answer. An answer that cannot be judged, for any reason, is wrong, as in the method.

    Args:
        function: name of the evaluation function.
        info: the right answer, or what the answer has to fulfil.

    Raises:
        MemoryError: nothing is known about the answer.
    """
    if len(answer) > MAX_CHARACTERS:
        return WRONG
    try:
        found = FUNCTIONS[function](answer, info)
    except MemoryError:
        raise
    except Exception:
        return WRONG
    return found if isinstance(found, Finding) else Finding(found)


def same_molecule(one: str, other: str) -> bool:
    """Return whether two SMILES are the same molecule; false if one is none."""
    molecules = Chem.MolFromSmiles(one), Chem.MolFromSmiles(other)
    return None not in molecules and canonical(molecules[0]) == canonical(molecules[1])


def normalised(name: str) -> str:
    """Return a chemical name without formatting."""
    name = SUPERSCRIPT.sub(r"^(\1)", name.strip().casefold())
    name = ITALIC_LETTER.sub(r"\1", name).replace("$", "").replace("~", "")
    return NEEDLESS_BRACKETS.sub(r"\1\2-", name).replace("^", "").replace(" ", "-")


def _without_punctuation(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name)
    return "".join(character for character in folded if unicodedata.category(character) not in ("Pd", "Po"))


def _same_text(answer: str, info: str) -> bool:
    return normalised(answer) == normalised(info)


def _same_name(answer: str, info: str) -> bool:
    names = normalised(answer), normalised(info)
    return names[0] == names[1] or _without_punctuation(names[0]) == _without_punctuation(names[1])


def _same_product(answer: str, info: str) -> bool:
    given, expected = largest_part(answer), largest_part(info)
    return given is not None and expected is not None and canonical(given) == canonical(expected)


def _plausible(molecule: Chem.Mol, reference: Chem.Mol | None = None, **asked: Any) -> Finding:
    words = words_of(molecule, reference)
    return WRONG if words is None else Finding(True, words, **asked)


def _same_formula(answer: str, info: str) -> Finding:
    given, expected = Chem.MolFromSmiles(answer), Chem.MolFromSmiles(info)
    if None in (given, expected) or CalcMolFormula(given) != CalcMolFormula(expected):
        return WRONG
    return _plausible(given, expected) if similarity(given, expected) >= CLOSE else WRONG


def functional_groups(molecule: Chem.Mol) -> set[str]:
    """Return the names of a molecule's functional groups, in lower case."""
    import exmol  # heavy, and few rows need it

    return {name.lower() for name in exmol.get_functional_groups(molecule, return_all=True)}


def _has_groups(answer: str, info: str) -> Finding:
    molecule = Chem.MolFromSmiles(answer)
    formula, groups = ast.literal_eval(info)[:2]
    if molecule is None or CalcMolFormula(molecule) != formula:
        return WRONG
    return _plausible(molecule) if {name.lower() for name in groups} <= functional_groups(molecule) else WRONG


def _completes(answer: str, info: str) -> Finding:
    for smiles in (answer, info + answer):
        molecule = Chem.MolFromSmiles(smiles) if smiles.startswith(info) else None
        if molecule is not None:
            return _plausible(molecule)
    return WRONG


def _is_molecule(answer: str, info: str) -> bool:
    return Chem.MolFromSmiles(answer) is not None


def _is_as_soluble(answer: str, info: str) -> Finding:
    molecule = None if "." in answer else Chem.MolFromSmiles(answer)
    constraint, data, target = ast.literal_eval(info)[:3]
    reference = None if constraint == "groups" else Chem.MolFromSmiles(data)
    if molecule is None or not _fulfils(molecule, constraint, data, reference):
        return WRONG
    return _plausible(molecule, reference, solubility=Solubility(answer, float(target)))


def _fulfils(molecule: Chem.Mol, constraint: str, data: Any, reference: Chem.Mol | None) -> bool:
    if constraint == "groups":
        return not functional_groups(molecule).isdisjoint(name.lower() for name in data)
    if constraint == "scaffold":
        return reference is not None and molecule.HasSubstructMatch(reference)
    if constraint == "tanimoto" and reference is not None:
        alike = size_difference(molecule, reference) <= MAX_SIZE_DIFFERENCE
        return alike and similarity(molecule, reference) >= CLOSE
    return False


def _makes(answer: str, info: str) -> Finding:
    if answer.count(">") != 2 or "." not in answer or not REACTION.match(answer):
        return WRONG
    reactants, reagents, products = (part.split(".") for part in answer.split(">"))
    given = [Chem.MolFromSmiles(smiles) for smiles in reactants]
    added = [Chem.MolFromSmiles(smiles) for smiles in reagents if smiles.strip()]
    stated = [Chem.MolFromSmiles(smiles) for smiles in products if smiles.strip()]
    target = Chem.MolFromSmiles(info)
    if None in (target, *given, *added, *stated):
        return WRONG
    name = canonical(target)
    if (stated and name not in map(canonical, stated)) or name in map(canonical, given + added):
        return WRONG
    small = [
        smiles for smiles, molecule in zip(reactants, given, strict=True) if molecule.GetNumHeavyAtoms() <= SMALL_ATOMS
    ]
    return Finding(True, reaction=Reaction(answer, info, reactants, small))


FUNCTIONS: dict[str, Callable[[str, str], Finding | bool]] = {
    "str_eval": _same_text,
    "should_not_answer_eval": _same_text,
    "rxn_eval": _same_name,
    "product_eval": _same_product,
    "caption_eval": _same_product,
    "formula_eval": _same_formula,
    "functional_group_eval": _has_groups,
    "valid_mol_eval": _completes,
    "should_answer_eval": _is_molecule,
    "sol_eval": _is_as_soluble,
    "rxn_forward": _makes,
}
