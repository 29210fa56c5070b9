"""A `vllm serve` with the tiny policy on the CPU, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any

from gymq.cluster.server.address import hold_port
from tests.support.waiting import until

from .tiny_policy import ON_CPU, POLICY

START_S = 900.0  # on a machine that does much else
STOP_S = 30.0
SERVED = "tiny"
NUM_ABORTED = re.compile(r'^vllm:request_success_total\{[^\n]*finished_reason="abort"[^\n]*\} (\S+)$', re.MULTILINE)
NUM_REQUESTS = re.compile(r"^vllm:num_requests_(?:running|waiting)\{[^\n]*\} (\S+)$", re.MULTILINE)


class Served:
    """The address of a server, and what it says of itself."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> str | None:
        """Return the answer to a GET; None if there is none."""
        return self._asked(self.root + path)

    def post(self, path: str) -> str | None:
        """Return the answer to a POST without a body; None if there is none."""
        return self._asked(urllib.request.Request(self.root + path, method="POST"))

    def num_running(self) -> float:
        return sum(map(float, NUM_REQUESTS.findall(self.get("/metrics") or "")))

    def num_aborted(self) -> float:
        return sum(map(float, NUM_ABORTED.findall(self.get("/metrics") or "")))

    def _asked(self, request: str | urllib.request.Request) -> str | None:
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return str(response.read().decode())
        except (OSError, urllib.error.URLError):
            return None


@asynccontextmanager
async def serving(folder: Path, *, environment: dict[str, str] | None = None, **changed: Any) -> AsyncIterator[Served]:
    """Start a server whose log is in this folder.

    Args:
        changed: options of the command, by their names with underscores.
    """
    log = folder / "vllm-serve.log"
    with hold_port() as held, log.open("w") as out:
        port = held.getsockname()[1]
        served = Served(port)
        with _process(_arguments(port, changed), out, environment or {}) as process:

            def is_up() -> bool:
                assert process.poll() is None, f"vllm serve ended:\n{log.read_text()[-4000:]}"
                return served.get("/health") is not None

            await until(is_up, deadline_s=START_S)
            yield served


def _arguments(port: int, changed: dict[str, Any]) -> list[str]:
    options = {
        "served_model_name": SERVED,
        "host": "127.0.0.1",
        "port": port,
        "dtype": "float32",
        "max_num_seqs": 16,
        "kv_cache_memory_bytes": 64 << 20,
        "distributed_executor_backend": "uni",
        "tool_call_parser": "hermes",
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
    } | changed
    named = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return ["serve", str(POLICY), *named, "--enforce-eager", "--enable-auto-tool-choice"]


@contextmanager
def _process(arguments: list[str], out: IO[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended at the end."""
    environment = {**os.environ, **ON_CPU, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **environment}
    command = [sys.executable, str(Path(__file__).with_name("serve.py")), *arguments]
    process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
