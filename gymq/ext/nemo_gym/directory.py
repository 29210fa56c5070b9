"""Directory of instances: the address of each one, as clients of the head server look it up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from gymq.config import Config, Instance, load
from gymq.ext.nemo_gym.addresses import add_addresses
from gymq.ext.shared.addresses import bracketed
from gymq.protocol.instances import SERVER_TYPE_OF, Kind

# What readers of the answer size their connection pools by.
_POOL = {"global_aiohttp_connector_limit": 65536, "global_aiohttp_connector_limit_per_host": 16384}
_REFERENCES = ("model_server", "resources_server")


@dataclass(frozen=True)
class InstanceAddress:
    """One instance and the address that it is advertised at."""

    name: str
    kind: Kind
    implementation: str
    host: str
    port: int
    references: Mapping[str, Any]  # to other instances, of agents
    asks_for_ids: bool = True  # whether its model is to return token ids; also where that is unknown

    @property
    def server_type(self) -> str:
        """The kind as configuration files call it."""
        return SERVER_TYPE_OF[self.kind]

    @property
    def url(self) -> str:
        return f"http://{bracketed(self.host)}:{self.port}"


class Directory:
    """All instances that a bridge serves, and the head server's own address."""

    def __init__(self, places: Iterable[InstanceAddress], head_host: str, head_port: int) -> None:
        self.head_host = head_host
        self.head_port = head_port
        self._by_name = {place.name: place for place in places}
        self._by_port = {place.port: place for place in self._by_name.values()}

    def __iter__(self) -> Iterator[InstanceAddress]:
        return iter(self._by_name.values())

    def get(self, name: str) -> InstanceAddress | None:
        return self._by_name.get(name)

    def at_port(self, port: int) -> InstanceAddress | None:
        """Return the instance that alone is served at a port, or None."""
        return self._by_port.get(port)

    def of_kind(self, kind: Kind) -> list[InstanceAddress]:
        return [place for place in self if place.kind == kind]

    def config_body(self) -> bytes:
        """Return the addresses as a JSON text whose value is a YAML document.

        Some clients parse the body as JSON, others as YAML; in pure ASCII it means the same to both. Options are left
        out because they hold secrets and settings of one machine.
        """
        tree: dict[str, Any] = {
            place.name: {
                place.server_type: {place.implementation: {"host": place.host, "port": place.port, **place.references}}
            }
            for place in self
        }
        tree |= {"head_server": {"host": self.head_host, "port": self.head_port}, **_POOL}
        return config_body(tree)


def config_body(tree: Mapping[str, Any]) -> bytes:
    """Return a mapping as YAML in a JSON text, in ASCII."""
    text = yaml.dump(dict(tree), Dumper=_Quoting, sort_keys=False, allow_unicode=False, width=2**31)
    return msgspec.json.encode(text)


class _Quoting(yaml.SafeDumper):
    """Quotes every text: readers differ in what else they take a text such as 1e3 or yes for."""


_Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def directory_of(config: Config, host: str, port: int, *, has_options: bool = True) -> Directory:
    """Return the directory of a configuration.

    Args:
        host: address that the bridge listens on; advertised unless the configuration names another one.
        port: port of the head server.
        has_options: whether the configuration has the options of the workers, rather than their names alone.

    Raises:
        ConfigError: there are not enough free ports.
    """
    reachable = host if host not in ("0.0.0.0", "::", "") else None
    tree = {**config.tree, "head_server": {"host": host, "port": port}}
    if reachable and not tree.get("use_absolute_ip"):
        tree["default_host"] = tree.get("default_host") or reachable
    addressed = add_addresses(tree)
    without_ids = {found.name for found in config.instances if has_options and _is_without_ids(found)}
    places = []
    for instance in config.instances:
        options = addressed[instance.name][instance.server_type][instance.implementation]
        references = {name: options[name] for name in _REFERENCES if isinstance(options.get(name), dict)}
        asks_for_ids = references.get("model_server", {}).get("name", instance.name) not in without_ids
        address = (options["host"], options["port"])
        places.append(
            InstanceAddress(instance.name, instance.kind, instance.implementation, *address, references, asks_for_ids)
        )
    head = next((place.host for place in places), reachable or "127.0.0.1")
    return Directory(places, head, port)


def _is_without_ids(instance: Instance) -> bool:
    options = instance.options
    return instance.kind == "models" and not (options.get("return_token_id_information") or options.get("token_ids"))


def config_of_workers(found: Iterable[Mapping[str, Any]], tree: Mapping[str, Any]) -> Config:
    """Return a configuration that names the running workers, for a bridge without one of its own.

    Args:
        found: workers, as `gymq.bus.discovery.find_workers` returns them.
        tree: top-level keys to keep, such as `port_range_low`.
    """
    initial: dict[str, Any] = dict(tree)
    for worker in found:
        metadata = worker["metadata"]
        if metadata["kind"] in SERVER_TYPE_OF:
            block = {"entrypoint": "worker.py", **({"domain": "other"} if metadata["kind"] == "resources" else {})}
            initial[worker["name"]] = {SERVER_TYPE_OF[metadata["kind"]]: {metadata["implementation"]: block}}
    return load([], initial=initial, env_yaml=None)
