"""The embedded server: a nats-server with JetStream on disk that gymq starts, watches and stops.

For one machine and one user. Its store folder holds everything:

    nats-server.conf    generated at every start (mode 0600: it holds the password)
    nats-server.log     log of the server, bounded; older parts beside it
    password            random, made once per store (mode 0600)
    server.json         address and process of the running server, without the password
    server.lock         held by the running nats-server
    jetstream/          the data
"""

from gymq.cluster.server.embedded import EmbeddedServer, find_running, is_gone, silent_owner
from gymq.cluster.server.store import StoreInUseError

__all__ = [
    "EmbeddedServer",
    "StoreInUseError",
    "find_running",
    "is_gone",
    "silent_owner",
]
