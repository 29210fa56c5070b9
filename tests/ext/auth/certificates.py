"""Certificates made for one test run."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OPENSSL = shutil.which("openssl")


@dataclass(frozen=True)
class Certificate:
    cert: Path
    key: Path


def make_authority(folder: Path, name: str) -> Certificate:
    """A certificate that signs others."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    named = ("-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # Python 3.13 asks for it
    _openssl("req", "-x509", *_NEW_KEY, "-keyout", made.key, "-out", made.cert, *named, "-days", "2")
    return made


def make_certificate(folder: Path, name: str, authority: Certificate) -> Certificate:
    """A certificate for 127.0.0.1, for servers and clients."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    names = "subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n"
    extensions.write_text(f"{names}extendedKeyUsage=serverAuth,clientAuth\n")
    _openssl("req", "-new", *_NEW_KEY, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
    signed_by = ("-CA", authority.cert, "-CAkey", authority.key, "-CAcreateserial")
    _openssl("x509", "-req", "-in", request, *signed_by, "-out", made.cert, "-days", "2", "-extfile", extensions)
    return made


def encrypt_key(certificate: Certificate, encrypted: Path) -> Path:
    """A copy of the key that needs a password."""
    _openssl("ec", "-in", certificate.key, "-aes256", "-passout", "pass:secret", "-out", encrypted)
    return encrypted


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: object) -> None:
    subprocess.run([str(OPENSSL), *map(str, arguments)], check=True, capture_output=True)
