"""An environment that blocks the event loop of its process, or ends it, where a row asks for that."""

import os
import re
import time
from pathlib import Path

import gymq


class Row(gymq.Row):
    processes: Path  # one line a verdict: the process it was given in
    does: str = ""


class Misbehaving(gymq.Resources[Row]):
    """Reward 1, after what the row wants."""

    @gymq.tool
    async def add(self, amount: int) -> int:
        """Never return."""
        while True:
            time.sleep(0.01)  # noqa: ASYNC251

    async def verify(self, request: gymq.VerifyRequest[Row]) -> float:
        if request.row.does == "loop":
            while True:
                pass
        if request.row.does == "expression":
            re.match(r"(a+)+$", "a" * 60 + "b")
        if request.row.does == "exit":
            print("there is no licence", flush=True)
            os._exit(3)
        with request.row.processes.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return 1.0
