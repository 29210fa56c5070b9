"""Molecules from SMILES, and what is looked at to tell whether one is plausible. Needs rdkit."""

from __future__ import annotations

from dataclasses import dataclass, field

from rdkit import Chem, DataStructs, rdBase
from rdkit.Chem import rdFingerprintGenerator

rdBase.DisableLog("rdApp.*")  # it reports every SMILES that is none

MAX_COUNTER_ION_ATOMS = 5
MORGAN = rdFingerprintGenerator.GetMorganGenerator(radius=2)


@dataclass(frozen=True)
class Words:
    """What of a molecule has to be known from real molecules for it to be plausible."""

    ring_systems: list[str] = field(default_factory=list)  # SMILES
    fingerprint_bits: list[str] = field(default_factory=list)  # numbers, as text


def canonical(molecule: Chem.Mol) -> str:
    return Chem.MolToSmiles(molecule, canonical=True, isomericSmiles=True)


def largest_part(smiles: str) -> Chem.Mol | None:
    """Return the largest molecule among the parts of a SMILES.

    Parts of up to three characters are taken for counter-ions.
    """
    parts = [Chem.MolFromSmiles(part) for part in smiles.split(".") if len(part) > 3]
    return max((part for part in parts if part is not None), key=lambda part: part.GetNumAtoms(), default=None)


def similarity(one: Chem.Mol, other: Chem.Mol) -> float:
    """Tanimoto similarity of the Morgan fingerprints."""
    return DataStructs.TanimotoSimilarity(MORGAN.GetFingerprint(one), MORGAN.GetFingerprint(other))


def size_difference(one: Chem.Mol, other: Chem.Mol) -> float:
    """By what share of the larger one the numbers of heavy atoms differ."""
    sizes = one.GetNumHeavyAtoms(), other.GetNumHeavyAtoms()
    return abs(sizes[0] - sizes[1]) / max(*sizes, 1)


def words_of(molecule: Chem.Mol, reference: Chem.Mol | None = None) -> Words | None:
    """Return the words of a molecule, less those of a reference; None if it is not plausible whatever they are."""
    Chem.SanitizeMol(molecule)
    parts = sorted(Chem.GetMolFrags(molecule, asMols=True), key=lambda part: part.GetNumAtoms(), reverse=True)
    if len(parts) > 2 or (len(parts) == 2 and parts[1].GetNumHeavyAtoms() > MAX_COUNTER_ION_ATOMS):
        return None
    rings, bits = ring_systems(parts[0]), fingerprint_bits(parts[0])
    if reference is not None:
        rings -= ring_systems(reference)
        bits -= fingerprint_bits(reference)
    return Words(sorted(rings), sorted(bits))


def fingerprint_bits(molecule: Chem.Mol) -> set[str]:
    return {str(bit) for bit in MORGAN.GetSparseCountFingerprint(molecule).GetNonzeroElements()}


def ring_systems(molecule: Chem.Mol) -> set[str]:
    """Rings with what is bound to them by more than a single bond, as SMILES.

    The method is that of Pat Walters' useful_rdkit_utils: cut all single bonds outside of rings, keep the pieces with a
    ring, and put hydrogens where the cuts were.
    """
    cuts = [
        bond.GetIdx()
        for bond in molecule.GetBonds()
        if bond.GetBondType() == Chem.BondType.SINGLE and not bond.IsInRing()
    ]
    pieces = Chem.FragmentOnBonds(molecule, cuts) if cuts else Chem.Mol(molecule)
    Chem.SanitizeMol(pieces)
    found = set()
    for piece in Chem.GetMolFrags(pieces, asMols=True):
        if piece.GetRingInfo().NumRings() > 0:
            for atom in piece.GetAtoms():
                if atom.GetAtomicNum() == 0:
                    atom.SetAtomicNum(1)
                    atom.SetIsotope(0)
            bare = Chem.RemoveAllHs(piece)
            for bond in bare.GetBonds():
                ends = bond.GetBeginAtom().GetDegree(), bond.GetEndAtom().GetDegree()
                if bond.GetBondType() == Chem.BondType.DOUBLE and 1 in ends:
                    bond.SetStereo(Chem.BondStereo.STEREONONE)  # the cut has taken its meaning
            found.add(Chem.MolToSmiles(bare))
    return found
