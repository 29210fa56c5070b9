"""Chance without state: every draw is a function of the seed and of names, in any process and order."""

from __future__ import annotations

import hashlib
import math
import random
import struct
from statistics import NormalDist

LOGNORMAL_SIGMA = 0.5

_NORMAL = NormalDist()
_unpack_digest = struct.Struct("<8Q").unpack


class Chance:
    """Draws that belong to one seed."""

    def __init__(self, seed: int) -> None:
        self._root = hashlib.blake2b(f"{seed}\0".encode())

    def digest(self, *names: bytes) -> bytes:
        """64 bytes that belong to the names."""
        mixed = self._root.copy()
        for name in names:
            mixed.update(b"%d\0" % len(name))
            mixed.update(name)
        return mixed.digest()


def uniforms(digest: bytes) -> list[float]:
    """Eight independent numbers, each in the open interval (0, 1)."""
    return [((value >> 12) + 0.5) * 2.0**-52 for value in _unpack_digest(digest)]


def exponential(mean: float, uniform: float) -> float:
    """Return a draw from the exponential distribution of this mean."""
    return -mean * math.log(uniform)


def lognormal(mean: float, uniform: float) -> float:
    """Return a draw from the lognormal distribution of this mean; its logarithm deviates by `LOGNORMAL_SIGMA`."""
    return mean * math.exp(LOGNORMAL_SIGMA * _NORMAL.inv_cdf(uniform) - LOGNORMAL_SIGMA**2 / 2)


def skill_of_task(mean: float, spread: float, digest: bytes) -> float:
    """Return the probability that a rollout of one task succeeds.

    Tasks follow a Beta distribution of this mean whose standard deviation is `spread` times the largest possible,
    sqrt(mean * (1 - mean)): with 0 all tasks are alike, towards 1 each is solved always or never.
    """
    if spread == 0.0 or mean in (0.0, 1.0):
        return mean
    concentration = 1.0 / spread**2 - 1.0
    rng = random.Random(int.from_bytes(digest[:8], "little"))
    return rng.betavariate(mean * concentration, (1.0 - mean) * concentration)
