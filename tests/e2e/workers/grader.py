"""A verifier that does what the row's script asks for."""

import asyncio
from collections import Counter
from typing import Any

import pydantic

import gymq


class Row(gymq.Row):
    script: dict[str, Any] = pydantic.Field(default_factory=dict)


class Grader(gymq.Resources[Row]):
    """The reward is that of the script, or 1."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._asked: Counter[str] = Counter()

    async def verify(self, request: gymq.VerifyRequest[Row]) -> gymq.Verdict:
        script = request.row.script
        key = str(request.row.responses_create_params["input"])
        self._asked[key] += 1
        await asyncio.sleep(script.get("verify_s", 0.0))
        if self._asked[key] <= script.get("verify_fails", 0):
            raise ValueError("the verifier is out of order")
        return gymq.Verdict(reward=script.get("reward", 1.0), asked=self._asked[key])
