"""A cancelled run stops: nothing new begins, nothing is left waiting, and each rollout ends as cancelled."""

import asyncio

from gymq.bus import Bus
from gymq.cancel import Cancellations, cancel

from .proxy import Proxy


async def test_who_was_away_when_a_run_was_cancelled_hears_of_it_on_coming_back(
    shared_url: str, bus: Bus, run: str
) -> None:
    async with Proxy(shared_url) as proxy:
        away = await Bus.connect(proxy.url, role="test", name="away")
        heard: asyncio.Queue[tuple[str, int | None]] = asyncio.Queue()
        cancellations = Cancellations(away, lambda run, task: heard.put_nowait((run, task)))
        await cancellations.start()
        while not heard.empty():
            heard.get_nowait()
        proxy.cut()
        while away.is_connected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await cancel(bus, run)
        await cancel(bus, f"{run}-other", 3)
        proxy.mend()
        async with asyncio.timeout(30):
            found = {await heard.get(), await heard.get()}
        assert found == {(run, None), (f"{run}-other", 3)}
        assert (run, 17) in cancellations
        assert (f"{run}-other", 3) in cancellations
        assert (f"{run}-other", 4) not in cancellations
        await away.close()
