"""The work of `gymq auth`."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gymq.bus.credentials import VARIABLE, password_file, read_password
from gymq.cluster.server.store import Store
from gymq.errors import UsageError
from gymq.ext.auth.auth_config import ServerSettings, Tls, render
from gymq.ext.auth.roles import ROLES, Role
from gymq.ext.shared.addresses import bracketed, is_loopback
from gymq.render import printable

SERVER_FILE = "nats-server.conf"


def print_subjects(role: Role, password: str) -> None:
    console = Console()
    console.print(printable(f"{role.name}: {role.purpose}"), soft_wrap=True)
    table = Table.grid(padding=(0, 2, 0, 0))
    lists = (("publish", role.publish), ("never publish", role.never_publish), ("subscribe", role.subscribe))
    for heading, subjects in lists:
        for number, subject in enumerate(subjects):
            table.add_row("" if number else heading, printable(subject))
    table.add_row("password", password)
    console.print(table, soft_wrap=True)


def masked(folder: Path | None, role: Role) -> str:
    if folder is None:
        return "-"
    return f"*** in {password_file(folder, role.name)}" if has_password(folder, role) else "none"


def has_password(folder: Path | None, role: Role) -> bool:
    return folder is not None and password_file(folder, role.name).is_file()


def tls_of(cert: Path | None, key: Path | None, ca: Path | None) -> Tls | None:
    if cert is None and key is None and ca is None:
        return None
    if cert is None or key is None:
        raise UsageError("TLS needs both --tls-cert and --tls-key")
    return Tls(cert.absolute(), key.absolute(), None if ca is None else ca.absolute())


def file_limit(server_file: Path, store: Path | None, folder: Path) -> int | None:
    """Return the bytes that the server may store; None: it decides.

    What is written already stays, since a server that runs does not take another limit.

    Args:
        store: folder of the streams, which may be on another machine; None: it is in `folder`.
    """
    if server_file.exists():
        written = re.search(r"^  max_file: ([0-9]{1,20})$", server_file.read_text(), re.MULTILINE)
        return None if written is None else int(written[1])
    return Store(store or folder).file_limit() if store is None or store.exists() else None


def write_server(file: Path, settings: ServerSettings) -> None:
    """Write the configuration of a server, and the passwords that are not in its folder yet."""
    passwords = {role.name: make_password(file.parent, role.name) for role in ROLES}
    _write_secret(file, render(settings, passwords))


def make_password(folder: Path, role: str) -> str:
    """Return the password of a role, and create it if the folder does not have it.

    Raises:
        BusError: it cannot be read, or is not valid.
        OSError: it cannot be written.
    """
    password = read_password(folder, role)
    if password is None:
        password = secrets.token_urlsafe(32)
        _write_secret(password_file(folder, role), password + "\n")
    return password


def _write_secret(file: Path, text: str) -> None:
    """Replace a file in one step; readable by its owner only, whatever the umask.

    Raises:
        OSError: it cannot be written.
    """
    new = file.with_name(f".{file.name}.new")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)
    new.replace(file)


def print_next_steps(file: Path, settings: ServerSettings) -> None:
    folder = file.parent
    if settings.tls is None and not is_loopback(settings.host):
        print("gymq: warning: without TLS, passwords and data can be read on the network", file=sys.stderr)
    host = "SERVER" if settings.host in ("0.0.0.0", "::") else bracketed(settings.host)
    url = f"{'nats' if settings.tls is None else 'tls'}://{host}:{settings.port}"
    print(f"the server:   nats-server -c {file}")
    print(f"the commands: export {VARIABLE}={folder.resolve()} GYMQ_NATS={url}")
    print(
        f"Give other machines only the files {folder}/ROLE.password of the roles that they run: see `gymq auth show`."
    )
