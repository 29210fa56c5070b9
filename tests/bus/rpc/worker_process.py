"""A worker process for tests that kill it. Arguments: URL, worker id, subject, queue group ("-" for none).

It answers `Generate` with its id; `params.sleep_s` makes it take so long. It prints "ready", then a line for each call.
"""

import asyncio
import sys

from gymq.bus import Bus
from gymq.bus.rpc.serving import Server
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BlobRef, Generate, Generated


async def main(url: str, worker: str, subject: str, group: str) -> None:
    bus = await Bus.connect(url, role="test", name=worker)

    async def answer(_subject: str, request: Generate) -> Generated:
        print(request.rollout, flush=True)
        await asyncio.sleep(request.params.get("sleep_s", 0.0))
        return Generated(response={"worker": worker})

    server = Server(bus, worker)
    await server.start()
    await server.serve(
        "test", subject, Decoder(Generate, BlobRef), answer, group="" if group == "-" else group, limit=1000
    )
    await bus.flush()
    print("ready", flush=True)
    await asyncio.sleep(3600)


asyncio.run(main(*sys.argv[1:]))
