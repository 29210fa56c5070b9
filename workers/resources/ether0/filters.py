"""The parts of real molecules: ring systems and fingerprint bits, in two Bloom filters that ether0 publishes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gymq.workers.resources.ether0.molecules import Words

from gymq import FailureClass, OptionsError, RolloutError
from gymq.authoring import importing

NAMES = ("rings", "fingerprints")


class PlausibilityFilters:
    """Knows the words of plausible molecules.

    Args:
        folder: where `rings.bloom` and `fingerprints.bloom` lie; None if there are none.

    Raises:
        OptionsError: the folder does not have them, or the library that reads them is missing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._filters: list[Any] = []
        if folder is None:
            return
        missing = [f"{name}.bloom" for name in NAMES if not (folder / f"{name}.bloom").is_file()]
        if missing:
            raise OptionsError(f"filters_dir: {folder} has no {' and no '.join(missing)}")
        with importing("ether0"):
            import molbloom
        self._canon = molbloom.canon
        self._filters = [molbloom.BloomFilter(str(folder / f"{name}.bloom")) for name in NAMES]

    def require(self) -> None:
        """
        Raises:
            RolloutError: there are no filters.
        """
        if not self._filters:
            text = (
                "the row needs ether0's filters of plausible molecules, and the option filters_dir does not name them"
            )
            raise RolloutError(FailureClass.COMPONENT_FAILED, text, retryable=False)

    def know(self, words: Words) -> bool:
        """Return whether all words occur in real molecules, but for the filters' few false positives."""
        rings, fingerprints = self._filters
        known_rings = all(self._canon(ring) in rings for ring in words.ring_systems)
        return known_rings and all(bit in fingerprints for bit in words.fingerprint_bits)
