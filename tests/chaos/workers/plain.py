"""A verifier without state."""

import asyncio
import os

import gymq


class Row(gymq.Row):
    grade: float
    verify_s: float
    kills: str | None = None  # "verify": it ends the process


class Plain(gymq.Resources[Row]):
    """Pays the grade that the policy says, if it is the row's; -1 otherwise."""

    max_concurrency = 100_000

    async def verify(self, request: gymq.VerifyRequest[Row]) -> gymq.Verdict:
        await asyncio.sleep(request.row.verify_s)
        if request.row.kills == "verify":
            os._exit(1)
        return gymq.Verdict(request.row.grade if request.reply_text == f"grade {request.row.grade}" else -1.0)
