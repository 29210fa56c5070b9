"""As which user a process connects: what its URL says, or the role's password in the folder that GYMQ_AUTH names.

The folder holds a file `<role>.password` for each role that its machine may take.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from gymq.errors import BusError

VARIABLE = "GYMQ_AUTH"

OPERATOR = "operator"
SERVICES = "services"
TRAINER = "trainer"
VIEWER = "viewer"

_PASSWORD = re.compile(r"[\w-]{32,}", re.ASCII)


def folder() -> Path | None:
    """Return the folder with the passwords of roles; None if no folder is set."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def password_file(folder: Path, role: str) -> Path:
    return folder / f"{role}.password"


def url_of_role(url: str, role: str) -> str:
    """Return `url` with the user and password of a role; unchanged if it names a user, or GYMQ_AUTH no folder.

    Raises:
        BusError: the folder has no usable password of the role.
    """
    where = folder()
    if where is None or "@" in url:
        return url
    password = read_password(where, role)
    if password is None:
        raise BusError(f"{VARIABLE} names the folder {where}, which has no password of the role {role!r}")
    return ",".join(_with_user(server, role, password) for server in url.split(","))


def may_take(url: str, role: str) -> bool:
    """Return whether this process can connect to `url` as a role, as far as it knows.

    Raises:
        BusError: the role's password cannot be read.
    """
    where = folder()
    return where is None or "@" in url or read_password(where, role) is not None


def login(url: str) -> tuple[list[str], dict[str, str]]:
    """Split a URL into its servers and the login for them: `user` and `password`, `token`, or nothing.

    Servers that a cluster announces later get the same login.
    """
    servers = []
    found: dict[str, str] = {}
    for server in url.split(","):
        scheme, separator, address = server.rpartition("://")
        who, _, address = address.rpartition("@")
        servers.append(f"{scheme}{separator}{address}")
        if who and not found:
            user, has_password, password = who.partition(":")
            found = {"user": unquote(user), "password": unquote(password)} if has_password else {"token": unquote(user)}
    return servers, found


def read_password(folder: Path, role: str) -> str | None:
    """Return the password of a role; None if the folder does not have it.

    Raises:
        BusError: it cannot be read, or is not valid.
    """
    file = password_file(folder, role)
    try:
        password = file.read_text("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BusError(f"cannot read {file}: {error.strerror}") from None
    if not _PASSWORD.fullmatch(password):
        raise BusError(f"{file} does not contain a password written by `gymq auth init`")
    return password


def _with_user(server: str, user: str, password: str) -> str:
    scheme, separator, address = server.rpartition("://")
    return f"{scheme if separator else 'nats'}://{user}:{password}@{address}"
