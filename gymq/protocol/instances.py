"""The workers of a configuration in the form that is passed to processes, and the names of their kinds."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gymq.defaults import Kind as Kind

ServerType = Literal["responses_api_models", "resources_servers", "responses_api_agents"]
"""A kind in configuration files: the key below an instance's name, and the `type` of a reference."""

KIND_OF: dict[str, Kind] = {
    "responses_api_models": "models",
    "resources_servers": "resources",
    "responses_api_agents": "agents",
}
SERVER_TYPE_OF = {kind: server_type for server_type, kind in KIND_OF.items()}
ROLE_OF = {"agents": "agent", "models": "model", "resources": "resources", "services": "services"}
"""The role as which a process with workers of a kind connects; `services` are intake, janitor and profiler."""

PROFILES_VARIABLE = "GYMQ_PROFILES"
"""The environment variable with the folder into which a worker process writes its profile when it ends."""


class Instance(msgspec.Struct, frozen=True):
    """One configured worker."""

    name: str  # its top-level key; other workers and messages call it by this name
    kind: Kind
    implementation: str  # the key below the kind; it names the worker's code
    options: dict[str, Any] = {}  # all below that; a part of the configuration's tree, not a copy
    digest: str = ""  # of what it does, where its cluster was started (`gymq.config.digest_of`)

    @property
    def server_type(self) -> str:
        """The key of the kind in configuration files, for example `resources_servers`."""
        return SERVER_TYPE_OF[self.kind]
