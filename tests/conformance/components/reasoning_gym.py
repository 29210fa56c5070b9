"""Nothing to stand in for; without the library, which is heavy, the cases are skipped."""

from typing import Any

import pytest

from ..scripted import ScriptedComponents


def install(_author: Any, _components: ScriptedComponents) -> None:
    pytest.importorskip("reasoning_gym", reason='needs pip install "gymq[reasoning-gym]"')
