"""The workers of a configuration, as processes are given them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["agents", "models", "resources"]
KINDS: dict[str, Kind] = {
    "responses_api_models": "models",
    "resources_servers": "resources",
    "responses_api_agents": "agents",
}
"""The key below an instance's name in configuration files, and the kind of worker it stands for."""


class Instance(msgspec.Struct, frozen=True):
    """One configured worker."""

    name: str  # its top-level key; other workers and messages call it by this name
    kind: Kind
    implementation: str  # the key below the kind; it names the worker's code
    options: dict[str, Any] = {}  # all below that; a part of the configuration's tree, not a copy

    @property
    def server_type(self) -> str:
        """The key of the kind in configuration files, for example `resources_servers`."""
        return next(key for key, kind in KINDS.items() if kind == self.kind)
