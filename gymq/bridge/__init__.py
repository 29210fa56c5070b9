"""The HTTP bridge: the interface that trainers and harnesses know, in front of the queue."""

from gymq.bridge.bridge import Bridge
from gymq.bridge.capture import Capture
from gymq.bridge.directory import Directory, InstanceAddress
from gymq.bridge.gateway import Admission, Gateway, asks_through
from gymq.bridge.model_calls import Ask
from gymq.bridge.settings import BridgeSettings, settings_of

__all__ = [
    "Admission",
    "Ask",
    "Bridge",
    "BridgeSettings",
    "Capture",
    "Directory",
    "Gateway",
    "InstanceAddress",
    "asks_through",
    "settings_of",
]
