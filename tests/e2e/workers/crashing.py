"""An environment with sessions whose verifier crashes its process where a row asks for it."""

import ctypes

import gymq


class Row(gymq.Row):
    crashes: bool = False


class Crashing(gymq.Resources[Row, Row]):
    """Reward 1."""

    async def open(self, row: Row) -> Row:
        return row

    async def verify(self, request: gymq.VerifyRequest[Row, Row]) -> float:
        if request.row.crashes:
            ctypes.string_at(0)
        return 1.0
