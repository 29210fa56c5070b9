"""A verifier without state that looks for the answer in the text."""

from __future__ import annotations

import gymq


class Row(gymq.Row):
    answer: str


class Stateless(gymq.Resources[Row]):
    max_concurrency = 100_000

    async def verify(self, request: gymq.VerifyRequest[Row]) -> gymq.Verdict:
        return gymq.Verdict(float(request.row.answer in request.reply_text))
