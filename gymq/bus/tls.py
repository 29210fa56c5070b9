"""TLS to the NATS server, as GYMQ_NATS_CA, GYMQ_NATS_CERT and GYMQ_NATS_KEY say.

A server whose URL begins with `tls://` must speak TLS; with `nats://`, TLS is spoken if the server asks for it.
"""

from __future__ import annotations

import os
import ssl

from gymq.errors import BusError

CA = "GYMQ_NATS_CA"  # certificates that may sign the server's, PEM; default: those of the system
CERT = "GYMQ_NATS_CERT"  # our own certificate, PEM, for servers that ask for one
KEY = "GYMQ_NATS_KEY"  # its key, PEM; default: in the file of the certificate


def is_demanded(url: str) -> bool:
    """Return whether a connection to `url` without TLS must not be made."""
    return any(server.startswith("tls://") for server in url.split(","))


def context(url: str) -> ssl.SSLContext | None:
    """Return the settings of TLS for `url`; None: the defaults of the client library.

    Raises:
        BusError: the settings in the environment cannot be used.
    """
    ca, cert, key = (os.environ.get(name) or None for name in (CA, CERT, KEY))
    if key is not None and cert is None:
        raise BusError(f"{KEY} needs {CERT}, the certificate of that key")
    if ca is None and cert is None and not is_demanded(url):
        return None
    try:
        made = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise BusError(f"cannot use {CA}={ca}: {_reason(error)}") from None
    if cert is not None:
        try:
            made.load_cert_chain(cert, key, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise BusError(f"cannot use {CERT}={cert} with {KEY}={key or cert}: {_reason(error)}") from None
    return made


def _no_password() -> str:
    # Without this, OpenSSL would ask for it at the terminal.
    raise ValueError("the key is encrypted; use an unencrypted one")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "no certificate or key in PEM form is in it, or they do not belong together"
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
