"""The configuration of a NATS server with one user for each role, in the language of nats-server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gymq.bus.credentials import OPERATOR
from gymq.bus.streams import stream_configs
from gymq.cluster.server.config import LIMITS
from gymq.ext.auth.roles import ROLES, Export, Role, exports

ROLES_ACCOUNT = "GYMQ"
STREAMS_ACCOUNT = "GYMQ_STREAMS"

_ANSWERS = {"one": "", "none": "", "many": ", response_type: stream"}


@dataclass(frozen=True)
class Tls:
    """Files of the server's certificate; with `ca`, clients must show a certificate signed by it."""

    cert: Path
    key: Path
    ca: Path | None = None


@dataclass(frozen=True)
class ServerSettings:
    """Storage, addresses and TLS of the server."""

    store: Path  # folder of JetStream
    host: str = "127.0.0.1"
    port: int = 4222
    monitor_port: int = 8222  # on loopback only: it asks for no password
    tls: Tls | None = None
    max_file_bytes: int | None = None  # of what is stored; None: three quarters of the disk that is free at the start


def render(settings: ServerSettings, passwords: Mapping[str, str]) -> str:
    """Return the text of nats-server.conf, which is secret because it holds the passwords.

    Args:
        passwords: one for each role.
    """
    return f"""\
# Written by gymq auth init. It holds the password of every role: keep it on the server.
server_name: gymq
host: {_quoted(settings.host)}
port: {settings.port}
http: "127.0.0.1:{settings.monitor_port}"

{LIMITS}
{"".join(_tls(settings.tls))}
jetstream {{
  store_dir: {_quoted(str(settings.store))}
  max_mem: 1GB
{_max_file(settings.max_file_bytes)}}}

accounts {{
  # The streams, without users: JetStream's answers cannot be turned into messages that it stores.
  {STREAMS_ACCOUNT} {{
    jetstream {{
      max_mem: 0            # all streams are files
      max_streams: {2 * len(stream_configs())}
      max_consumers: 1000   # of each stream
    }}
    exports: [
{_lines(_exported(export) for export in exports())}
    ]
  }}
  {ROLES_ACCOUNT} {{
    limits {{
      max_connections: 19900    # of the server's: a user of another account can still look at a server that is full
      max_subscriptions: 20000  # of each connection: an agent's process has two for each open queue, others far fewer
    }}
    imports: [
{_lines(_imported(export) for export in exports())}
    ]
    users: [
{_lines(_user(role, passwords[role.name]) for role in ROLES)}
    ]
  }}
}}
"""


def _max_file(max_bytes: int | None) -> str:
    return "" if max_bytes is None else f"  max_file: {max_bytes}\n"


def _tls(tls: Tls | None) -> Iterator[str]:
    if tls is None:
        return
    yield "tls {\n"
    yield f"  cert_file: {_quoted(str(tls.cert))}\n"
    yield f"  key_file: {_quoted(str(tls.key))}\n"
    if tls.ca is not None:
        yield f"  ca_file: {_quoted(str(tls.ca))}\n"
        yield "  verify: true\n"
    yield "}\n"


def _exported(export: Export) -> str:
    if export.answers == "heard":
        return f"{{ stream: {_quoted(export.subject)} }}"
    return f"{{ service: {_quoted(export.subject)}{_ANSWERS[export.answers]} }}"


def _imported(export: Export) -> str:
    kind = "stream" if export.answers == "heard" else "service"
    return f"{{ {kind}: {{ account: {STREAMS_ACCOUNT}, subject: {_quoted(export.subject)} }} }}"


def _user(role: Role, password: str) -> str:
    login = f"user: {role.name}, password: {_quoted(password)}"
    if role.name == OPERATOR:
        return f"{{ {login} }}"
    publish = f"allow: {_list(role.publish)}"
    if role.never_publish:
        publish += f", deny: {_list(role.never_publish)}"
    return (
        f"{{ {login}, permissions: {{\n"
        f"        publish: {{ {publish} }}\n"
        f"        subscribe: {{ allow: {_list(role.subscribe)} }}\n"
        f"      }} }}"
    )


def _list(subjects: Iterable[str]) -> str:
    return "[" + ", ".join(map(_quoted, subjects)) + "]"


def _lines(entries: Iterable[str]) -> str:
    return "\n".join(f"      {entry}" for entry in entries)


def _quoted(text: str) -> str:
    # A quoted text of nats-server has the escapes of JSON, as far as they are needed here.
    return json.dumps(text, ensure_ascii=False)
