"""Messages over the two streams of a program: four bytes of length, eight of a number, then the message.

The number is random, and the answer repeats it. So what a program sent unasked, or a process that it forked sent too,
is never taken for the answer to a later message.
"""

from __future__ import annotations

import asyncio
import secrets

from gymq.processes.failing import OnFailureAwait
from gymq.sandbox.interface import ProgramSession, SessionEnded


class StreamSession(ProgramSession):
    """A session with a program whose stdout is `reader` and whose stdin is `writer`.

    Args:
        max_bytes: the longest message that is taken from the program.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_bytes: int) -> None:
        self._reader = reader
        self._writer = writer
        self._max_bytes = max_bytes

    async def exchange(self, message: bytes, timeout_s: float) -> bytes:
        # A later answer would be taken for that to the next message.
        async with OnFailureAwait(self.close), asyncio.timeout(timeout_s):
            try:
                number = secrets.token_bytes(8)
                self._writer.write(len(message).to_bytes(4, "big") + number + message)
                await self._writer.drain()
                length = int.from_bytes(await self._reader.readexactly(4), "big")
                if await self._reader.readexactly(len(number)) != number:
                    raise SessionEnded("the program sent an unsolicited message")
                if length > self._max_bytes:
                    raise SessionEnded(f"the program sent a message of {length} bytes, more than {self._max_bytes}")
                return await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                raise SessionEnded("the program of the session ended") from None
