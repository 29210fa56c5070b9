"""Session cookies: the subject of a session, signed, so that any bridge with the same secret can resume it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time

import msgspec

from gymq.data.failure_status import StatusError
from gymq.protocol.messages import SessionSubject


class _Ticket(msgspec.Struct, array_like=True):
    resources: str
    session: SessionSubject | None  # None: the worker keeps no state
    issued_at: int  # Unix time, seconds


_decode = msgspec.json.Decoder(_Ticket).decode


class SessionCookies:
    """Makes and reads the cookies of one bridge."""

    def __init__(self, secret: str, max_age_s: float) -> None:
        self._secret = secret.encode()
        self.max_age_s = max_age_s

    def name(self, resources: str) -> str:
        """Return the cookie's name for an instance.

        Hosts share cookies between ports, so each instance has a name of its own.
        """
        return f"gymq_session_{resources}"

    def make(self, resources: str, session: str | None) -> str:
        body = msgspec.json.encode(_Ticket(resources, session, int(time.time())))
        return f"{_text(body)}.{_text(self._signature(body))}"

    def read(self, resources: str, value: str) -> str | None:
        """Return the session in a cookie; None if its worker keeps no state.

        Raises:
            StatusError: 400 if it was made elsewhere or for another instance; 401 if it is too old.
        """
        body_text, _, signature = value.partition(".")
        try:
            body = _bytes(body_text)
            genuine = hmac.compare_digest(_bytes(signature), self._signature(body))
        except (binascii.Error, ValueError):
            genuine = False
        if not genuine:
            raise StatusError(400, "bad_session", "this session cookie is not from this bridge: seed a session")
        ticket = _decode(body)
        if ticket.resources != resources:
            raise StatusError(400, "bad_session", f"this session cookie is for another instance than {resources!r}")
        if time.time() - ticket.issued_at > self.max_age_s:
            text = f"this session cookie is older than {self.max_age_s:g} s: seed a new session"
            raise StatusError(401, "session_expired", text)
        return ticket.session

    def _signature(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, body, hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
