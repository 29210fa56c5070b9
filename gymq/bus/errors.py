"""The errors of the connection to NATS."""

from __future__ import annotations

from gymq.errors import BusError


class TooLarge(BusError):
    """The body exceeds what the server takes; trying again cannot help."""


class Denied(BusError):
    """The server does not let this user do it; trying again cannot help."""


class NoServer(BusError):
    """No server is there, and none is expected."""


class NoResponders(BusError):
    """The subject has no subscribers; the request was not delivered."""


class NoAnswer(BusError):
    """No answer came in time; whether the request was delivered is unknown."""
