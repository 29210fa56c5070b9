"""Addresses: the host and port of each instance, for clients that reach workers over HTTP."""

import random
import socket
from collections.abc import Callable
from copy import deepcopy
from typing import Annotated, Any

from pydantic import BaseModel, Field

from gymq.config.errors import ConfigError, dotted
from gymq.config.instances import find_instances
from gymq.config.schema import Implementation, problems

DEFAULT_HEAD_PORT = 11000

Port = Annotated[int, Field(ge=1, le=65535)]


class HeadServer(BaseModel):
    """The head server, which lists all instances."""

    port: Port | None = DEFAULT_HEAD_PORT


class Addressing(BaseModel):
    """The top-level keys for the addresses of instances; null is the default."""

    default_host: str | None = None
    use_absolute_ip: bool | None = None
    port_range_low: Port | None = None
    port_range_high: Port | None = None
    disallowed_ports: list[Port] | None = None
    head_server: HeadServer | None = None


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
        is_free: returns whether a port is free.

    Raises:
        ConfigError: one of these keys is not valid, or no free port was found in 50 attempts.
    """
    invalid = problems(Addressing, tree)
    if invalid:
        raise ConfigError("; ".join(f"{dotted(keys)}: {problem}" for keys, problem in invalid))
    settings = Addressing.model_validate(tree)
    host = _own_address() if settings.use_absolute_ip else settings.default_host or "127.0.0.1"
    head = tree.get("head_server") or {"host": host, "port": DEFAULT_HEAD_PORT}
    low = settings.port_range_low or 10001
    high = settings.port_range_high or 20000
    if low > high:
        raise ConfigError(f"port_range_low {low} is above port_range_high {high}")

    tree = deepcopy(tree)
    instances, _ = find_instances(tree)
    taken = {(settings.head_server or HeadServer()).port, *(settings.disallowed_ports or ())}
    taken.update(Implementation.model_validate(instance.options).port for instance in instances)
    candidates = [port for port in range(low, high + 1) if port not in taken]
    random.shuffle(candidates)
    for instance in instances:
        instance.options["host"] = instance.options.get("host") or host
        if not instance.options.get("port"):
            attempts = (candidates.pop() for _ in range(min(50, len(candidates))))
            port = next((port for port in attempts if is_free(port)), None)
            if port is None:
                hint = "widen port_range_low and port_range_high, or give it a port"
                raise ConfigError(f"{instance.name}: no free port from {low} to {high}; {hint}")
            instance.options["port"] = port
    return tree | {"port_range_low": low, "port_range_high": high, "head_server": head}


def _own_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise ConfigError(f"use_absolute_ip: this machine's name has no address: {error}") from None
