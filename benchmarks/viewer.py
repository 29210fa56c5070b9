"""How long a long rollout takes in the viewer: until it is seen, what is transferred, and how smoothly it scrolls.

python -m benchmarks.viewer
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.ext.viewer.browser import Page, browser

from gymq.bus import Bus, streams
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.server import EmbeddedServer
from gymq.execution.services.profiler import Profiler
from gymq.ext.viewer.viewer import Viewer
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Run, Stage, Timing, VerifiedRollout
from gymq.testing import function_call, reply

RUN = "long"
MARKDOWN = """## Step {number}

The value at **{number}** follows from the one before, $x_{{{number}}} = x_{{{before}}} + {number}$, so I run it:

```python
def step(x: int) -> int:
    return x + {number}  # one more than the step before
```

| what | value |
|------|------:|
| step | {number} |
| sum  | {total} |

"""

# What the browser notes by itself while the page is opened and scrolled.
NOTES = """
(() => {
  const noted = globalThis.noted = { frames: [], tasks: [] };
  new PerformanceObserver((list) => noted.tasks.push(...list.getEntries().map((one) => [one.startTime, one.duration])))
    .observe({ type: "longtask", buffered: true });
  const look = () => {
    noted.head ??= document.querySelector(".reading h1") ? performance.now() : undefined;
    noted.turns ??= document.querySelectorAll(".turn").length >= 3 ? performance.now() : undefined;
    const asked = document.querySelector(".gist .rich");
    noted.rendered ??= asked && !asked.classList.contains("pending") ? performance.now() : undefined;
  };
  const all = { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] };
  new MutationObserver(look).observe(document, all);
})()
"""
OPENED = """
(() => {
  const found = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  return {
    paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
    head: noted.head, turns: noted.turns, rendered: noted.rendered,
    bytes: found.reduce((sum, one) => sum + one.transferSize, 0),
    longest: Math.max(0, ...noted.tasks.map(([, took]) => took)),
    nodes: document.querySelectorAll("*").length,
  };
})()
"""
SCROLLED = """
new Promise((done) => {
  const began = performance.now(), frames = [], place = document.scrollingElement;
  let before = began;
  const frame = (at) => {
    frames.push(at - before);
    before = at;
    place.scrollTop += STEP;
    const isEnd = place.scrollTop + innerHeight >= place.scrollHeight - 2;
    if (!isEnd && frames.length < 5000) return requestAnimationFrame(frame);
    const tasks = noted.tasks.filter(([start]) => start >= began).map(([, took]) => took);
    done({ frames: frames.slice(1), height: place.scrollHeight, tasks });
  };
  requestAnimationFrame(frame);
})
"""


def rollout(turns: int, long_chars: int) -> VerifiedRollout:
    """Return a rollout whose prompt, one result and one reply have `long_chars` characters; the others have few."""
    items: list[Any] = []
    timings = []
    for number in range(turns):
        text = MARKDOWN.format(number=number, before=number - 1, total=number * (number + 1) // 2)
        output = json.dumps({"stdout": f"{number}\n" * 100, "code": 0})
        if number == turns // 4:
            output = "".join(f"{line}: what the program printed\n" for line in range(long_chars // 32))
        if number == turns // 2:
            text *= long_chars // len(text) + 1
        call, said = reply(function_call("run_python", {"code": f"print(step({number}))\n" * 10}), text)["output"]
        thought = {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "First I look, then I add. " * 20}],
        }
        items += [thought, call, {"type": "function_call_output", "call_id": call["call_id"], "output": output}, said]
        timings += [Timing(Stage.MODEL, 2.0 * number, 1.5), Timing(Stage.TOOL, 2.0 * number + 1.5, 0.5)]
    question = "Add **all** the numbers.\n\n" + "Here is a line of the input.\n" * (long_chars // 29)
    row = {"expected_answer": "19900", "responses_create_params": {"input": question}}
    return VerifiedRollout(
        run=RUN,
        task_index=0,
        rollout_index=0,
        agent="adder",
        row=json.dumps(row).encode(),
        response=reply("done") | {"output": items},
        reward=1.0,
        verdict={"extracted_answer": "19900"},
        timings=timings,
        duration_s=2.0 * turns,
        num_rollouts=1,
    )


FIGURES = (
    ("paint", "first contentful paint"),
    ("head", "head in the page"),
    ("turns", "first turns in the page"),
    ("rendered", "question rendered"),
    ("longest", "longest task while opening"),
)


async def opened(page: Page, url: str) -> dict[str, float]:
    """Open the page in a tab that has nothing of it, and return what it noted."""
    await page.send("Page.navigate", url="about:blank")
    await page.send("Page.navigate", url=url)
    await page.until("noted.rendered")
    await page.rendered()
    found: dict[str, float] = await page.value(OPENED)
    return found


async def measure(url: str, times: int, step: int) -> None:
    async with browser() as page:
        await page.send("Page.addScriptToEvaluateOnNewDocument", source=NOTES)
        await page.size(1280, 900)
        await opened(page, url)  # the browser starts parts of its own with the first
        found = [await opened(page, url) for _ in range(times)]
        for name, what in FIGURES:
            took = [one[name] for one in found]
            print(f"{what:28} {statistics.median(took):7.0f} ms, at most {max(took):.0f}")
        print(f"{'transferred':28} {found[-1]['bytes'] / 1e6:7.2f} MB; {found[-1]['nodes']:,.0f} elements")
        began = time.perf_counter()
        scrolled = await page.value(SCROLLED.replace("STEP", str(step)))
        frames = sorted(scrolled["frames"])
        late = sum(frame > 50 for frame in frames)
        print(
            f"{'scrolling to the end':28} {time.perf_counter() - began:7.1f} s: {len(frames):,} frames for "
            f"{scrolled['height']:,.0f} px, median {statistics.median(frames):.0f} ms, 95 % "
            f"{frames[len(frames) * 95 // 100]:.0f}, longest {frames[-1]:.0f}; {late} above 50 ms; "
            f"longest task {max(scrolled['tasks'], default=0):.0f} ms"
        )
        assert not page.problems, page.problems


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--long-chars", type=int, default=1_000_000, help="characters of each of the three long texts")
    parser.add_argument("--times", type=int, default=7, help="how often the page is opened")
    parser.add_argument("--step", type=int, default=300, help="pixels that are scrolled in each frame")
    given = parser.parse_args()
    made = rollout(given.turns, given.long_chars)
    size = len(encode(made)) / 1e6
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {given.turns} turns, a rollout of {size:.1f} MB")
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        async with (
            EmbeddedServer(Path(folder) / "jetstream") as server,
            await Bus.connect(server.url, role="client", name="benchmark") as bus,
        ):
            await streams.ensure(bus.js, [])
            record = Run(run=RUN, created_at=time.time(), num_rollouts=1)
            await bus.js.store(subjects.RUN.of(RUN), encode(record))
            await OutcomeStore(bus).put(made, replaces=None, patience_s=30.0)
            profiler = Profiler(bus)
            await profiler.start()
            async with Viewer(bus, "127.0.0.1") as viewer:
                await measure(f"{viewer.url}#/rollout/{RUN}/0/0", given.times, given.step)
            await profiler.stop()


if __name__ == "__main__":
    asyncio.run(main())
