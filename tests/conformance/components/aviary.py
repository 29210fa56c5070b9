"""Wikipedia's answers from a case's script. Without the library, which is heavy, the cases are skipped."""

from typing import Any

import pytest

from ..scripted import ScriptedComponents


def install(author: Any, components: ScriptedComponents) -> None:
    pytest.importorskip("aviary.envs.gsm8k", reason='needs pip install "gymq[aviary]"')
    author.pages = {reply["entity"]: reply["html"] for reply in components.replies}
