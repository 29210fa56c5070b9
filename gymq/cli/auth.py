"""gymq auth"""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table

from gymq import credentials
from gymq.auth import ROLES, Role
from gymq.auth_config import ServerSettings, Tls, render
from gymq.cli.errors import Refused
from gymq.cli.listing import listing
from gymq.cli.printable import printable
from gymq.credentials import VARIABLE, CredentialsError, password_file
from gymq.server.address import bracketed

SERVER_FILE = "nats-server.conf"

Port = Annotated[int, Parameter(validator=Number(gte=1, lte=65535))]

auth = App(
    name="auth",
    help="A NATS server where each role may do only what it needs.",
    default_parameter=Parameter(negative=()),
)


@auth.command
def init(
    *,
    folder: Path,
    host: str = "127.0.0.1",
    port: Port = 4222,
    monitor_port: Port = 8222,
    store: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    tls_ca: Path | None = None,
    force: bool = False,
) -> int:
    """Write the configuration of a NATS server with one user for each role, and a password for each.

    FOLDER/nats-server.conf is for the server alone. FOLDER/ROLE.password goes to the machines that run that role.
    Passwords that are there are kept; to change one, delete its file and use --force.

    Args:
        folder: where to write; made if missing, readable by you only.
        host: address the server listens on.
        port: port the server listens on.
        monitor_port: port of the server's monitoring, on 127.0.0.1.
        store: folder where the server keeps its streams; default: FOLDER/jetstream.
        tls_cert: certificate of the server, PEM, as a path on the machine of the server.
        tls_key: key of that certificate, PEM.
        tls_ca: certificates that may sign those of clients, PEM; clients without one are then refused.
        force: replace the nats-server.conf that is there.
    """
    settings = ServerSettings(
        store=(store or folder / "jetstream").resolve(),
        host=host,
        port=port,
        monitor_port=monitor_port,
        tls=_tls(tls_cert, tls_key, tls_ca),
    )
    server_file = folder / SERVER_FILE
    try:
        if server_file.exists() and not force:
            raise Refused(f"{server_file} exists: --force replaces it and keeps the passwords")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        passwords = {role.name: credentials.make_password(folder, role.name) for role in ROLES}
        credentials.write_secret(server_file, render(settings, passwords))
    except CredentialsError as error:
        raise Refused(str(error)) from None
    except OSError as error:
        raise Refused(f"cannot write to {folder}: {error.strerror}") from None
    if settings.tls is None and not _is_loopback(host):
        print("gymq: warning: without TLS, passwords and data can be read on the network", file=sys.stderr)
    print(f"the server:   nats-server -c {server_file}")
    print(f"the commands: export {VARIABLE}={folder.resolve()} GYMQ_NATS={_url(settings)}")
    print(
        f"Give other machines only the files {folder}/ROLE.password of the roles that they run: see `gymq auth show`."
    )
    return 0


@auth.command
def show(role: str | None = None, /, *, folder: Path | None = None, json: bool = False) -> int:
    """List the roles and what each is for, or all that one role may publish and subscribe to. Shows no password.

    Args:
        role: a role, to see its subjects.
        folder: the folder with passwords; default: the one that GYMQ_AUTH names.
        json: print it as JSON.
    """
    known = {found.name: found for found in ROLES}
    if role is not None and role not in known:
        raise Refused(f"there is no role {role!r}; there are {', '.join(known)}")
    shown = ROLES if role is None else (known[role],)
    folder = folder or credentials.folder()
    if json:
        for found in shown:
            print(msgspec.json.encode({**asdict(found), "has_password": _has_password(folder, found)}).decode())
    elif role is None:
        table = listing("roles", "role", "what it does", "password")
        for found in shown:
            table.add_row(found.name, printable(found.purpose), _masked(folder, found))
        Console().print(table)
    else:
        _print_subjects(known[role], _masked(folder, known[role]))
    return 0


def _print_subjects(role: Role, password: str) -> None:
    console = Console()
    console.print(printable(f"{role.name}: {role.purpose}"), soft_wrap=True)
    table = Table.grid(padding=(0, 2, 0, 0))
    lists = (("publish", role.publish), ("never publish", role.never_publish), ("subscribe", role.subscribe))
    for heading, subjects in lists:
        for number, subject in enumerate(subjects):
            table.add_row("" if number else heading, printable(subject))
    table.add_row("password", password)
    console.print(table, soft_wrap=True)


def _masked(folder: Path | None, role: Role) -> str:
    if folder is None:
        return "-"
    return f"*** in {password_file(folder, role.name)}" if _has_password(folder, role) else "none"


def _has_password(folder: Path | None, role: Role) -> bool:
    return folder is not None and password_file(folder, role.name).is_file()


def _tls(cert: Path | None, key: Path | None, ca: Path | None) -> Tls | None:
    if cert is None and key is None and ca is None:
        return None
    if cert is None or key is None:
        raise Refused("TLS needs both --tls-cert and --tls-key")
    return Tls(cert.absolute(), key.absolute(), None if ca is None else ca.absolute())


def _url(settings: ServerSettings) -> str:
    host = "SERVER" if settings.host in ("0.0.0.0", "::") else bracketed(settings.host)
    return f"{'nats' if settings.tls is None else 'tls'}://{host}:{settings.port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        return False
