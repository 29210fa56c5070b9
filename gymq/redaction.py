"""Hiding credentials in what people read and in what is stored.

The one place that knows which names mean a secret, for `gymq config`, logs, failures and replies.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import msgspec

MASK = "****"
"""Stands for a secret in a configuration that is shown or kept."""

_WORDS = ("token", "key", "secret", "password", "passwd", "authorization", "credential", "bearer", "cookie")
# As parts of longer words these mean something else: author.
_SHORT_WORDS = ("auth", "pwd", "pw", "passphrase", "private", "access", "webhook", "header")
_LAST_WORD = re.compile(
    rf"(^|[^a-z])((api)?({'|'.join(_WORDS)})s?|auth|pwd|pw|pass|passphrase|private|access|webhooks?(_ur[li])?)$",
    re.IGNORECASE,
)
_ANY_WORD = re.compile(rf"{'|'.join(_WORDS)}|(^|[^a-z])({'|'.join(_SHORT_WORDS)})s?([^a-z]|$)", re.IGNORECASE)
_HEADERS = re.compile(r"(^|[^a-z])headers$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_WORD = re.compile("|".join(_WORDS), re.IGNORECASE)
_FIELD = re.compile(r"[?&][^=&#\s]*+=?")  # of a URL's query; one without a value is read once, too
_VALUE = re.compile(r"[^&#\s]++")
_NAMED = re.compile(r"(?<![\w-])(-{0,2})([A-Za-z][\w-]{0,80}+)[\"']?\s?+([=:]?)\s?+[\"']?")  # what may name a value
_NAMED_VALUE = re.compile(r"(?:(?:Bearer|Basic|Token) )?[^\s\"',;{}]{6,}+", re.IGNORECASE)
_KEY_FORM = re.compile(
    r"(?<![\w-])(?:(?:sk|pk|rk|hf|gsk|nvapi|npm|pypi|glpat|github_pat|gh[pousr]|xox[abeprs])[-_][\w-]{16,}+"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}+|eyJ[\w-]{16,}+\.[\w.-]++)"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
)
"""What keys look like: those of providers and JSON web tokens begin with a name of their own; PEM says what it is."""
_PASSWORD = re.compile(r"://[^\s/:@]*+:([^\s/@]++)@")  # of a URL

_MIN_CHARS = 8  # hiding what is shorter would make other texts unreadable
_CREDENTIAL = re.compile(r"[^\s\"\\]{16,}")
"""What is cut out of replies too, if it has letters and digits: unlike `EMPTY`, no model writes it by chance."""

MOST_ENDED = 64  # of secrets that open nothing any more

_hidden: set[str] = set()
_ended: deque[str] = deque()
_credentials: set[bytes] = set()


def names_secret(name: str) -> bool:
    """Return whether texts under this name are secrets, by its last word: key, token, password, auth, webhook etc.

    The environment variable `PWD` is the working directory.
    """
    return name != "PWD" and _LAST_WORD.search(_CAMEL.sub("_", name)) is not None


def names_headers(name: str) -> bool:
    """Return whether this is the name of HTTP headers, whose values may be secrets."""
    return _HEADERS.search(_CAMEL.sub("_", name)) is not None


def may_name_secret(name: str) -> bool:
    """Return whether the value under this name is hidden from people: there is such a word in it."""
    return names_secret(name) or _ANY_WORD.search(_CAMEL.sub("_", name)) is not None


def hide(secret: str) -> None:
    """Have `redact` replace this text too, in this process from now on. Texts of fewer than 8 characters stay."""
    if len(secret) >= _MIN_CHARS:
        _hidden.add(secret)


def hide_passwords(text: str) -> None:
    """Hide the passwords of the URLs in a text, as they are there and as a program decodes them."""
    for password in _PASSWORD.findall(text):
        hide(password)
        hide(unquote(password))


@contextmanager
def hidden(secret: str) -> Iterator[None]:
    """Hide a secret as `hide` does while the block runs: a process has many that open something only for a while.

    The last `MOST_ENDED` stay hidden: the error with which a block ends may hold its secret.
    """
    hide(secret)
    try:
        yield
    finally:
        _ended.append(secret)
        if len(_ended) > MOST_ENDED:
            _hidden.discard(_ended.popleft())


def hide_credential(text: str) -> None:
    """Hide a secret that lasts, and have `without_credentials` cut out each part of it that looks like a key."""
    hide(text)
    for part in _credentials_in(text):
        hide(part)
        _credentials.add(part.encode())


def hide_options(options: Any, name: str = "") -> None:
    """Hide every text in a worker's options that is below a name like `api_key`; see `hide_credential`.

    Of headers, those that have such a name, and values that look like a key.
    """
    if isinstance(options, dict):
        for key, value in options.items():
            hide_options(value, key if names_secret(key) or names_headers(key) else name)
    elif isinstance(options, list):
        for element in options:
            hide_options(element, name)
    elif isinstance(options, str) and names_secret(name):
        hide_credential(options)
    elif isinstance(options, str):
        for part in _credentials_in(options) if name else ():
            hide_credential(part)


def redact(text: str) -> str:
    """Redact a text, for example a URL, for display: what precedes an "@" in a URL and each secret becomes "***"."""
    return re.sub(r"(^|://)(?:(?!://)\S)*@", r"\1***@", without_hidden(text, "***"))


def without_hidden(text: str, mask: str) -> str:
    """Return a text in which `mask` replaces each secret that this process hides.

    May be called in any thread, while another one hides a secret.
    """
    for secret in sorted(_hidden, key=len, reverse=True):  # no secret leaves the end of a longer one
        text = text.replace(secret, mask)
    return text


def without_queries(text: str, mask: str) -> str:
    """Return a text in which secrets in the queries of URLs are replaced by `mask`."""
    parts, end = [], 0
    for field in _FIELD.finditer(text):
        if field.start() < end or not _SECRET_WORD.search(field[0]):
            continue
        value = _VALUE.match(text, field.end()) if field[0].endswith("=") else None
        if value is not None:
            parts += [text[end : field.end()], mask]
            end = value.end()
    return "".join([*parts, text[end:]])


def without_named_secrets(text: str, mask: str) -> str:
    """Return a text in which `mask` replaces what is named or looks like a secret.

    That is what follows `API_KEY=`, `Authorization:` or `--token`, and the keys of known providers.
    """
    parts, end = [], 0
    for name in _NAMED.finditer(text):
        if name.start() < end or not (name[1] or name[3]) or not names_secret(name[2]):
            continue
        value = _NAMED_VALUE.match(text, name.end())
        if value is not None and not value[0].startswith(mask):
            parts += [text[end : name.end()], mask]
            end = value.end()
    return _KEY_FORM.sub(mask, "".join([*parts, text[end:]]))


def environment_secrets() -> Iterator[str]:
    """Yield the values of this process's environment variables that are named like secrets."""
    return (value for name, value in os.environ.items() if names_secret(name))


def without_credentials(body: bytes) -> bytes:
    """Return the body of a message with `***` in place of the credentials of this process's options.

    An endpoint may put the key that it was sent into its answer, and answers are stored for anyone to read. Decoded
    only if a credential is in it; msgpack escapes nothing, so the bytes show it.
    """
    found = [secret for secret in sorted(_credentials, key=len, reverse=True) if secret in body]
    if not found:
        return body
    root = msgspec.msgpack.decode(body)
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            pairs = [(_cut(key, found), _cut(value, found)) for key, value in node.items()]
            node.clear()
            node.update(pairs)
            waiting += node.values()
        elif isinstance(node, list):
            node[:] = [_cut(value, found) for value in node]
            waiting += node
    return msgspec.msgpack.encode(root)


def _cut(value: Any, secrets: list[bytes]) -> Any:
    if isinstance(value, bytes):
        for secret in secrets:
            value = value.replace(secret, b"***")
    elif isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret.decode(), "***")
    return value


def _credentials_in(text: str) -> list[str]:
    return [part for part in _CREDENTIAL.findall(text) if re.search(r"[A-Za-z]", part) and re.search(r"\d", part)]
