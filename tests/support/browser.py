"""A real browser for tests: headless Chromium, driven over its DevTools protocol."""

import asyncio
import atexit
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
REQUIRED = os.environ.get("GYMQ_REQUIRE_BROWSER") == "1"  # as in CI: then a missing browser is a failure
START_S = 600.0
PATIENCE_S = 600.0

# Without a sandbox of its own, since tests run as root in containers too; what it opens comes from the test alone.
# Without motion, since no test looks at what moves, and without a graphics card each frame is computed.
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--disable-background-timer-throttling"),
    *("--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", "--remote-debugging-port=0"),
    "--force-prefers-reduced-motion",
    "about:blank",
)
_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}  # of keys with which a browser does something by itself


needs_browser = pytest.mark.skipif(
    CHROMIUM is None and not REQUIRED, reason="Chromium is not installed: apt-get install chromium"
)


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.problems: list[str] = []  # uncaught errors, and what the page's policy refused
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            body = json.loads(message.data)
            if "id" in body:
                self._answers.pop(body["id"]).set_result(body)
            elif body["method"] == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(body["params"]["exceptionDetails"])[:600])
            elif body["method"] == "Log.entryAdded" and body["params"]["entry"]["source"] == "security":
                self.problems.append(body["params"]["entry"]["text"])

    async def send(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        body = await asyncio.wait_for(answer, PATIENCE_S)
        assert "error" not in body, body
        return body["result"]

    async def open(self, url: str) -> None:
        """Open the page; again if the browser lost one of its files, as it does now and then on a busy machine."""
        for _ in range(3):
            await self.send("Page.navigate", url="about:blank")
            await self.send("Page.navigate", url=url)
            await self.until("location.href !== 'about:blank' && document.readyState === 'complete'")
            if not await self.value("document.body.innerText.includes('needs JavaScript')"):
                return

    async def follow(self, view: str) -> None:
        """Show another view of the page that is open, as its links do; opening the page takes five times as long."""
        arrived = "addEventListener('hashchange', done, { once: true })"  # after the page's own listener
        await self.value(f"new Promise((done) => {{ {arrived}; location.hash = {json.dumps(view)} }}).then(() => 0)")

    async def value(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        found = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> Any:
        """The value of an expression once it is true."""
        give_up = asyncio.get_running_loop().time() + PATIENCE_S
        tried = f"(() => {{ try {{ return {expression} }} catch {{ return null }} }})()"  # while a page is being loaded
        while not (value := await self.value(tried)):
            if asyncio.get_running_loop().time() > give_up:
                text = await self.value("document.body.innerText")
                raise AssertionError(f"{expression} did not come true; the page says: {text[:3000]}\n{self.problems}")
            await asyncio.sleep(0.1)
        return value

    async def shows(self, text: str) -> None:
        await self.until(f"document.body.innerText.includes({json.dumps(text)})")

    async def press(self, key: str) -> None:
        code = {"windowsVirtualKeyCode": _CODES[key]} if key in _CODES else {}
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, **code)
        await self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    async def unfold(self) -> None:
        """Open all that is folded on the page of a rollout, and what is folded in it."""
        closed = "document.querySelectorAll('.reading details:not(.record):not([open])').length"
        while await self.value(closed):
            await self.press("c")

    async def rendered(self) -> None:
        """Wait until no text in the window is still to be rendered."""
        await self.until("document.querySelector('main .card') && !document.body.innerText.includes('loading …')")
        near = (
            "(box) => { const { top, bottom } = box.getBoundingClientRect(); return top < innerHeight && bottom > 0 }"
        )
        shown = "one.checkVisibility({ contentVisibilityAuto: true })"
        await self.until(f"![...document.querySelectorAll('.pending')].some((one) => {shown} && ({near})(one))")

    async def whole(self, width: int, height: int = 900) -> None:
        """Make the window as high as the page, and wait until all texts are rendered."""
        await self.size(width, height)
        await self.rendered()
        tall = await self.value("document.documentElement.scrollHeight")
        await self.size(width, max(height, tall))
        await self.rendered()

    async def size(self, width: int, height: int = 900) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    async def screenshot(self, path: Path, *, whole: bool = True) -> None:
        shot = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))

    async def leave(self) -> None:
        """Leave nothing to the next test: neither what the page stored, nor a page that asks its server."""
        await self.value("(() => { try { localStorage.clear(); sessionStorage.clear() } catch { } })()")
        await self.send("Page.navigate", url="about:blank")

    async def close(self) -> None:
        self._reading.cancel()
        await self._socket.close()


@asynccontextmanager
async def browser(*flags: str) -> AsyncIterator[Page]:
    """The one tab of a browser with these flags, with no storage, while the block runs: a new one costs half a test."""
    running = await asyncio.to_thread(_running, flags)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{running.port}/json/list") as answer:
            (tab,) = [target for target in await answer.json() if target["type"] == "page"]
        page = Page(await session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0))
        for domain in ("Page", "Runtime", "Log"):
            await page.send(f"{domain}.enable")
        try:
            yield page
        finally:
            await page.leave()
            await page.close()


class _Chromium:
    """A browser until this process ends: to start one for each test costs as much as most of the tests."""

    def __init__(self, flags: Sequence[str]) -> None:
        assert CHROMIUM is not None, "Chromium is not installed, and GYMQ_REQUIRE_BROWSER=1 requires it"
        self._folder = tempfile.TemporaryDirectory(prefix="gymq-web-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [CHROMIUM, f"--user-data-dir={self._folder.name}", *flags, *_FLAGS],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": self._folder.name},
        )
        atexit.register(self._end)
        self.port = self._find_port()

    def _find_port(self) -> int:
        file = Path(self._folder.name) / "DevToolsActivePort"
        give_up = time.monotonic() + START_S
        while (text := _text(file)) is None:
            assert self._process.poll() is None, "the browser ended"
            assert time.monotonic() < give_up, "the browser did not start"
            time.sleep(0.1)
        return int(text.split()[0])

    def is_running(self) -> bool:
        return self._process.poll() is None

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()


_started: dict[tuple[str, ...], _Chromium] = {}


def _running(flags: tuple[str, ...]) -> _Chromium:
    if flags not in _started or not _started[flags].is_running():
        _started[flags] = _Chromium(flags)
    return _started[flags]


def _text(file: Path) -> str | None:
    """What is in a file, once it is there."""
    try:
        return file.read_text() or None
    except FileNotFoundError:
        return None
