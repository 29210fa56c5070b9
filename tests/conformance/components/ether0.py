"""ether0's filters and models from a case's script. Without rdkit, which is heavy, the cases are skipped."""

from dataclasses import dataclass
from typing import Any

import pytest

from gymq import ComponentFailed

from ..scripted import ScriptedComponents


def install(author: Any, components: ScriptedComponents) -> None:
    pytest.importorskip("rdkit", reason='needs pip install "gymq[ether0]"')
    says = components.constant("plausibility") or {"reasonable": True}
    author.filters = ScriptedFilters(says["reasonable"])
    author.remotes = ScriptedRemotes(components)


@dataclass
class ScriptedFilters:
    """Says the same of every molecule."""

    reasonable: bool

    def require(self) -> None:
        pass

    def know(self, _words: Any) -> bool:
        return self.reasonable


class ScriptedRemotes:
    """Predicts what the case says."""

    def __init__(self, components: ScriptedComponents) -> None:
        self._components = components

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def require(self) -> None:
        pass

    async def solubility(self, smiles: str) -> float:
        return self._next("solubility", smiles)["value"]

    async def purchasable(self, smiles: list[str]) -> dict[str, bool]:
        value = self._next("purchasable", smiles)["value"]
        return value if isinstance(value, dict) else dict.fromkeys(smiles, value)

    async def product(self, reaction: str) -> str:
        return self._next("forward_reaction", reaction)["product"]

    def _next(self, component: str, asked: Any) -> dict[str, Any]:
        reply = self._components.next(component, {"component": component, "asked": asked}, ComponentFailed)
        if "error" in reply or "raise" in reply:
            raise ComponentFailed(str(reply.get("error") or reply.get("raise")))
        return reply
