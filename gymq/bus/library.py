"""Import the client library, nats-py, without aiohttp, which only addresses `ws://` and `wss://` need.

aiohttp is a quarter of what a worker process imports, and a cluster starts many of these.
"""

import importlib
import sys

_NEEDED_BY_WEBSOCKETS = "aiohttp"

_is_imported = _NEEDED_BY_WEBSOCKETS in sys.modules
if not _is_imported:
    sys.modules[_NEEDED_BY_WEBSOCKETS] = None  # type: ignore[assignment]  # makes its import fail, which nats-py expects
try:
    import nats.aio.transport
finally:
    if not _is_imported:
        del sys.modules[_NEEDED_BY_WEBSOCKETS]


def prepare_for(url: str) -> None:
    """Import what the transport of an address needs.

    Args:
        url: URLs of servers, separated by commas.
    """
    if any(part.strip().startswith(("ws://", "wss://")) for part in url.split(",")):
        vars(nats.aio.transport)[_NEEDED_BY_WEBSOCKETS] = importlib.import_module(_NEEDED_BY_WEBSOCKETS)
