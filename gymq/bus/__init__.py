"""NATS and JetStream: the connection, the streams, large bodies and discovery, and what is built on them.

Calls are in `gymq.bus.rpc`, tasks and outcomes in `gymq.bus.queue`, new weights in `gymq.bus.weights`.

Only this package uses the client library. Whatever asks the server, or stores something there, raises `BusError` if it
gets no answer in time or the connection is lost; docstrings name only the other errors.
"""

from gymq.bus import library as library  # first: it decides what nats-py imports

# isort: split

from gymq.bus.bus import Bus
from gymq.bus.connection import Msg, Subscription
from gymq.bus.errors import Denied, NoAnswer, NoResponders, NoServer, TooLarge
from gymq.errors import BusError

__all__ = ["Bus", "BusError", "Denied", "Msg", "NoAnswer", "NoResponders", "NoServer", "Subscription", "TooLarge"]
