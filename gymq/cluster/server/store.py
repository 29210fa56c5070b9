"""The store folder of an embedded server: one owner at a time, the password, who runs there."""

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from gymq.cluster.server.address import HOST
from gymq.cluster.server.config import LOG_FILE, LOG_MAX_BYTES
from gymq.errors import UsageError
from gymq.processes.failing import OnFailure

CONFIG_FILE = "nats-server.conf"
_GRACE_S = 1.0  # a server whose owner was killed just now needs a moment to end
_MIN_FREE_BYTES = 64 << 20  # with less, streams freeze a moment after the start


class StoreInUseError(UsageError):
    """Another process owns the store."""


class ServerRecord(msgspec.Struct, frozen=True):
    """The content of server.json: which server runs on the store. Its URL has no password."""

    server_name: str  # random per start: distinguishes this server from another one on the same port
    url: str
    host: str
    port: int
    pid: int
    owner_pid: int
    version: str
    started: str  # ISO 8601, UTC
    gives_way: bool = False  # it only shows what is stored, and ends when somebody wants to write


class Store:
    """Files of one store folder. Methods raise UsageError when the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / LOG_FILE
        self._config = self.folder / CONFIG_FILE
        self._password = self.folder / "password"
        self._record = self.folder / "server.json"
        self._lock = self.folder / "server.lock"
        self._wanted = self.folder / "server.wanted"

    async def acquire(self, *, gives_way: bool = False) -> int:
        """Become the owner of the store and return the open lock file.

        An owner that gives way is asked for the store, unless the new one would give way too.

        The lock lasts until every copy of the descriptor is closed, so the server that inherits it keeps others away
        for as long as it lives, even when the process that started it is gone.
        """
        with self._checked():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with OnFailure(partial(os.close, lock)):
            begun = time.monotonic()
            while not _is_locked(lock, fcntl.LOCK_EX):
                asks = not gives_way and self._owner_gives_way()
                if asks:
                    with self._checked():
                        self._wanted.touch(mode=0o600)
                # A server that gives way needs some seconds to end.
                if time.monotonic() >= begun + (15.0 if asks else _GRACE_S):
                    raise self._in_use(os.pread(lock, 20, 0).decode("ascii", "replace"))
                await asyncio.sleep(0.02)
            with self._checked():
                os.ftruncate(lock, 0)
                os.pwrite(lock, str(os.getpid()).encode(), 0)
                if not gives_way:
                    self._wanted.unlink(missing_ok=True)
        return lock

    async def owner(self) -> str | None:
        """Return the process that owns the store, or None; one that ends in a moment does not count."""
        give_up = time.monotonic() + _GRACE_S
        with self._checked(), contextlib.suppress(FileNotFoundError), self._lock.open("rb") as lock:
            while not _is_locked(lock.fileno(), fcntl.LOCK_SH):
                if time.monotonic() >= give_up:
                    return lock.read(20).decode("ascii", "replace")
                await asyncio.sleep(0.02)
        return None

    def is_wanted(self) -> bool:
        """Return whether a process waits for an owner that gives way to end."""
        with self._checked(), contextlib.suppress(FileNotFoundError):
            # A request is valid for 20 s. One of the future is as old: the clock was set back after it.
            return abs(time.time() - self._wanted.stat().st_mtime) < 20.0
        return False

    def _owner_gives_way(self) -> bool:
        record = self.read_record()
        return self.is_wanted() or (record is not None and record.gives_way)

    def _in_use(self, owner: str) -> StoreInUseError:
        record = self.read_record()
        server = f" (its nats-server is process {record.pid})" if record and str(record.owner_pid) == owner else ""
        return StoreInUseError(
            f"The store folder {self.folder} is in use by process {owner or 'unknown'}{server}:"
            " stop that process or choose another folder."
        )

    def read_password(self) -> str | None:
        """Return the password of the store, or None if it has none yet."""
        with self._checked(), contextlib.suppress(FileNotFoundError):
            password = self._password.read_text("ascii", "replace").strip()
            if not re.fullmatch(r"[\w-]{32,}", password, re.ASCII):
                raise UsageError(
                    f"The file {self._password} is damaged: delete it, and the next start creates a new one."
                )
            return password
        return None

    def make_password(self) -> str:
        """Return the password of the store, and create it if it has none yet. For the owner of the store."""
        password = self.read_password()
        if password is None:
            password = secrets.token_urlsafe(32)
            self._write(self._password, password, durable=True)
        with self._checked():
            self._password.chmod(0o600)
        return password

    def used_bytes(self) -> int:
        """Return the bytes of the stored messages."""
        with self._checked():
            return sum(block.stat().st_size for block in self.folder.glob("jetstream/**/*.blk"))

    def file_limit(self) -> int:
        """Return the bytes that JetStream may use: what it uses now and nine tenths of the free disk.

        Raises:
            UsageError: the disk is full.
        """
        with self._checked():
            free = shutil.disk_usage(self.folder).free
        if free < _MIN_FREE_BYTES:
            raise UsageError(
                f"The disk of the store folder {self.folder} is full ({free >> 20} MiB free,"
                f" {_MIN_FREE_BYTES >> 20} MiB are needed): make room or choose another folder."
            )
        return self.used_bytes() + free * 9 // 10

    def has_room(self) -> bool:
        """Return whether a server could be started on the disk."""
        try:
            return shutil.disk_usage(self.folder).free >= _MIN_FREE_BYTES
        except OSError:
            return False

    def write_config(self, text: str) -> None:
        """Replace nats-server.conf."""
        self._write(self._config, text)

    def write_record(self, record: ServerRecord) -> None:
        """Replace server.json."""
        self._write(self._record, msgspec.json.format(msgspec.json.encode(record)).decode())

    def read_record(self) -> ServerRecord | None:
        """Return the record of the last server here, or None. Its process may be gone.

        One that names another machine is not ours: commands would join the cluster of the one who made the folder.
        """
        with self._checked(), contextlib.suppress(FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            record = msgspec.json.decode(self._record.read_bytes(), type=ServerRecord)
            return record if record.host == HOST else None
        return None

    def remove_record(self, server_name: str) -> None:
        """Remove server.json if it describes this server."""
        record = self.read_record()
        if record and record.server_name == server_name:
            with self._checked():
                self._record.unlink(missing_ok=True)

    def open_log(self) -> int:
        """Return a descriptor that appends to the log. A log that is already full becomes nats-server.old.log."""
        with self._checked():
            # The server would do so too, but never removes what it put aside when it opened its log.
            if self.log.exists() and self.log.stat().st_size >= LOG_MAX_BYTES:
                self.log.replace(self.log.with_suffix(".old.log"))
            return os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def log_size(self) -> int:
        """Return the bytes of the log, or 0 where it cannot be read."""
        try:
            return self.log.stat().st_size
        except OSError:
            return 0

    def log_lines(self, offset: int) -> list[str]:
        """Return the lines of the log from byte `offset` on, or none where it cannot be read."""
        try:
            with self.log.open("rb") as log:
                log.seek(offset)
                return log.read(1 << 20).decode("utf-8", "replace").splitlines()
        except OSError:
            return []

    def _write(self, path: Path, text: str, *, durable: bool = False) -> None:
        """Replace `path` in one step; readable by its owner only, for any umask. `durable` survives a power cut."""
        new = path.with_name(path.name + ".new")
        with self._checked():
            new.unlink(missing_ok=True)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            new.replace(path)

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"The store folder {self.folder} cannot be used ({error.strerror}: {error.filename or self.folder}):"
                " choose a folder on a disk with room that you may write to."
            ) from error


def _is_locked(file: int, how: int) -> bool:
    """Lock a file, unless another process has it locked; return whether it is locked now."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
