"""Workers and bridge in a separate process, for a training program: started, monitored, stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import msgspec
from omegaconf import OmegaConf

from gymq.config.loader import ENV_YAML
from gymq.ext.nemo_gym.addresses import DEFAULT_HEAD_PORT
from gymq.ext.shared.addresses import reachable
from gymq.processes import parent_death
from gymq.redaction import redact


class _Instance(msgspec.Struct):
    process_name: str  # of the instance; `name` is its implementation
    server_type: str
    status: str


_decode_instances = msgspec.json.Decoder(list[_Instance]).decode


class ChildCluster:
    """`gymq up` with a bridge, as a child process that ends with this one."""

    def __init__(self, config: Any, *, env_yaml: Path | None = None) -> None:
        """Prepare a cluster; nothing is started yet.

        Args:
            config: a configuration, a mapping or OmegaConf's; interpolations may be unresolved.
            env_yaml: a further file, of lower precedence than `config`.
        """
        tree: Any = config if OmegaConf.is_config(config) else OmegaConf.create(dict(config))
        lower = OmegaConf.load(env_yaml) if env_yaml is not None and Path(env_yaml).exists() else OmegaConf.create()
        self._config = cast(Any, OmegaConf.merge(lower, tree))
        head = self._config.get("head_server") or {}
        host = head.get("host") or "127.0.0.1"
        port = head.get("port") or DEFAULT_HEAD_PORT
        self.url = f"http://{reachable(host)}:{port}"
        self._headers = _headers(self._config.get("bridge") or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> None:
        """Start it; returns when it serves.

        Raises:
            RuntimeError: it ended, or did not serve in time.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="gymq-")
        folder = Path(self._folder.name)
        # Named so because a trainer's configuration has keys that nothing here reads, which env.yaml alone may have. It
        # may hold secrets: its folder is readable by this user only.
        file = folder / ENV_YAML
        OmegaConf.save(_startable(self._config), file)
        process = self._process = self._spawn(folder, ["up", "--config", str(file)])
        start_s = 1800.0  # a model may take its time to load
        give_up = time.monotonic() + start_s
        while self._get("/health") is None:
            status = process.poll()
            if status is not None:
                said = self._said()
                self.stop()
                raise RuntimeError(f"gymq up ended with status {status}: {said}")
            if time.monotonic() > give_up:
                self.stop()
                raise RuntimeError(f"gymq up did not serve {self.url} within {start_s:g} s")
            time.sleep(0.1)

    def _spawn(self, folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
        """Start a gymq that ends with this process.

        The kernel ends it with the thread that started it, so a thread of its own waits for it.
        """
        started: Future[subprocess.Popen[bytes]] = Future()

        def run() -> None:
            try:
                with (folder / "log").open("wb") as log:
                    process = subprocess.Popen(
                        parent_death.bound([sys.executable, "-P", "-m", "gymq", *arguments]),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        cwd=folder,
                    )
            except OSError as error:
                started.set_exception(RuntimeError(f"gymq up cannot be started: {error}"))
                return
            started.set_result(process)
            process.wait()

        threading.Thread(target=run, name="gymq up", daemon=True).start()
        return started.result()

    def check(self) -> None:
        """Check that everything still serves.

        Raises:
            RuntimeError: a part does not; the message names it.
        """
        if self._process is None:
            raise RuntimeError("gymq up was not started, or was stopped")
        status = self._process.poll()
        if status is not None:
            raise RuntimeError(f"gymq up, the process of the workers and the bridge, ended with status {status}")
        # A worker that is started again is away for a moment.
        missing = self._missing() and self._missing()
        if missing:
            raise RuntimeError(f"no worker serves {', '.join(missing)}")

    def stop(self) -> None:
        """Stop it. May be called again."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _missing(self) -> list[str]:
        """Return the instances that no process serves."""
        body = self._get("/server_instances")
        if body is None:
            raise RuntimeError(f"the bridge at {self.url} does not answer")
        return [
            f"{found.server_type} {found.process_name}"
            for found in _decode_instances(body)
            if found.status != "running"
        ]

    def _get(self, path: str) -> bytes | None:
        request = urllib.request.Request(self.url + path, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=1.5) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            return None

    def _said(self) -> str:
        """Return the end of the log."""
        assert self._folder is not None
        log = (Path(self._folder.name) / "log").read_bytes()[-2000:]
        return redact(log.decode(errors="replace").strip())


def _startable(config: Any) -> Any:
    """Return the configuration with a bridge and with absolute paths of files."""
    config = OmegaConf.merge(config)
    if config.get("bridge") is None:
        config["bridge"] = {}
    paths = [str(Path(path).absolute()) if Path(path).exists() else path for path in config.get("config_paths") or ()]
    if paths:
        config["config_paths"] = paths
    return config


def _headers(bridge: Mapping[str, Any]) -> dict[str, str]:
    key = bridge.get("api_key")
    return {} if key is None else {"Authorization": f"Bearer {key}"}
