"""Addresses at which servers of this machine listen, and are found."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether a name or address can only mean this machine."""
    name = host.lower().strip("[]").removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """Return `host` as it stands in front of ":port" (IPv6 addresses in brackets)."""
    return f"[{host}]" if ":" in host else host


def reachable(host: str) -> str:
    """Return where clients on this machine find a server that listens at `host`, as it stands in front of ":port".

    One that listens at `::` may take connections of IPv6 only.
    """
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]"}.get(host, bracketed(host))
