"""Define the command `gymq auth`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from cyclopts import App, Parameter

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import Port
from gymq.errors import UsageError

auth = App(
    name="auth",
    help="Configure a NATS server where each role may do only what it needs.",
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
    """Write the configuration of a NATS server with a user and a password for each role.

    FOLDER/nats-server.conf is for the server only. Copy FOLDER/ROLE.password to the machines that run that role.
    Existing passwords are kept; to change one, delete its file and pass --force.

    Args:
        folder: where to write; created if missing, readable only by you.
        host: address the server listens on.
        port: port the server listens on.
        monitor_port: port of the server's monitoring, on 127.0.0.1.
        store: folder where the server keeps its streams; default: FOLDER/jetstream.
        tls_cert: certificate of the server, PEM; a path on the server's machine.
        tls_key: key of that certificate, PEM.
        tls_ca: certificate authorities of client certificates, PEM; clients without a certificate are then refused.
        force: replace an existing nats-server.conf.
    """
    from gymq.ext.auth.actions import SERVER_FILE, file_limit, print_next_steps, tls_of, write_server
    from gymq.ext.auth.auth_config import ServerSettings

    if not host:
        raise UsageError("--host needs an address; 0.0.0.0 is all of them")
    tls = tls_of(tls_cert, tls_key, tls_ca)
    server_file = folder / SERVER_FILE
    try:
        if server_file.exists() and not force:
            raise UsageError(f"{server_file} exists: --force replaces it and keeps the passwords")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings = ServerSettings(
            store=(store or folder / "jetstream").resolve(),
            host=host,
            port=port,
            monitor_port=monitor_port,
            tls=tls,
            max_file_bytes=file_limit(server_file, store, folder),
        )
        write_server(server_file, settings)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from None
    print_next_steps(server_file, settings)
    return 0


@auth.command
def show(role: str | None = None, /, *, folder: Path | None = None, json: bool = False) -> int:
    """List the roles and their purposes, or everything that one role may publish and subscribe to, without passwords.

    Args:
        role: a role, to see its subjects.
        folder: the folder with passwords; default: the one that GYMQ_AUTH names.
        json: print it as JSON.
    """
    import msgspec

    from gymq.bus import credentials
    from gymq.ext.auth.actions import has_password, masked, print_subjects
    from gymq.ext.auth.roles import ROLES
    from gymq.render import listing, listing_console, printable

    known = {found.name: found for found in ROLES}
    if role is not None and role not in known:
        raise UsageError(f"unknown role {role!r}; the roles are {', '.join(known)}")
    shown = ROLES if role is None else (known[role],)
    folder = folder or credentials.folder()
    if json:
        for found in shown:
            print(msgspec.json.encode({**asdict(found), "has_password": has_password(folder, found)}).decode())
    elif role is None:
        table = listing("roles", "role", "what it does", "password")
        for found in shown:
            table.add_row(found.name, printable(found.purpose), masked(folder, found))
        listing_console().print(table)
    else:
        print_subjects(known[role], masked(folder, known[role]))
    return 0


AUTH = Command("Operate", "Configure a NATS server with a role for each process.", "gymq.ext.auth.command:auth")
"""`gymq auth`: what the users of a NATS server may do."""
