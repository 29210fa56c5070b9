"""Addresses: the host and port of each instance, for those who reach workers over HTTP."""

import random
import socket
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from gymq.config.errors import ConfigError
from gymq.config.instances import find_instances

DEFAULT_HEAD_PORT = 11000
DEFAULT_PORT_RANGE = (10001, 20000)
_MAX_ATTEMPTS = 50


def port_is_free(port: int) -> bool:
    """Return whether this machine can listen on a TCP port now."""
    with socket.socket() as listener:
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True


def add_addresses(tree: dict[str, Any], is_free: Callable[[int], bool] = port_is_free) -> dict[str, Any]:
    """Return a copy of a resolved configuration in which every instance has a host and a port.

    An instance without a host gets `default_host`, or 127.0.0.1, or this machine's address with `use_absolute_ip`. One
    without a port gets a random free one from `port_range_low` to `port_range_high` (10001 to 20000) that nothing else
    in the configuration uses and that `disallowed_ports` does not name. `head_server` is added if there is none.

    Args:
        tree: a resolved configuration.
        is_free: tells whether a port can be had.

    Raises:
        ConfigError: if a number is not a port, or no free port was found in 50 attempts.
    """
    tree = deepcopy(tree)
    instances, _ = find_instances(tree)
    host = _own_address() if tree.get("use_absolute_ip") else tree.get("default_host") or "127.0.0.1"
    head = tree.get("head_server") or {"host": host, "port": DEFAULT_HEAD_PORT}
    low = _setting(tree, "port_range_low", DEFAULT_PORT_RANGE[0])
    high = _setting(tree, "port_range_high", DEFAULT_PORT_RANGE[1])
    if not 1 <= low <= high <= 65535:
        raise ConfigError(f"port_range_low {low} and port_range_high {high} must be ports, the lower one first")

    taken = {_port(port, "disallowed_ports") for port in tree.get("disallowed_ports") or ()}
    if isinstance(head, dict) and head.get("port", DEFAULT_HEAD_PORT) is not None:
        taken.add(_port(head.get("port", DEFAULT_HEAD_PORT), "head_server.port"))
    taken.update(int(instance.options["port"]) for instance in instances if instance.options.get("port"))
    for instance in instances:
        instance.options["host"] = instance.options.get("host") or host
        if not instance.options.get("port"):
            instance.options["port"] = _free_port(low, high, taken, is_free, instance.name)
            taken.add(instance.options["port"])
    return tree | {"port_range_low": low, "port_range_high": high, "head_server": head}


def _free_port(low: int, high: int, taken: set[int], is_free: Callable[[int], bool], name: str) -> int:
    candidates = [port for port in range(low, high + 1) if port not in taken]
    for port in random.sample(candidates, min(_MAX_ATTEMPTS, len(candidates))):
        if is_free(port):
            return port
    raise ConfigError(
        f"{name}: no free port from {low} to {high}; widen port_range_low and port_range_high, or give it a port"
    )


def _setting(tree: dict[str, Any], key: str, default: int) -> int:
    return default if tree.get(key) is None else _port(tree[key], key)


def _port(value: Any, key: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 65535:
        raise ConfigError(f"{key} must be a port from 1 to 65535, not {value!r}")
    return value


def _own_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise ConfigError(f"use_absolute_ip: this machine's name has no address: {error}") from None
