"""Settings of a bridge: the mapping `bridge` of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pydantic

from gymq.data.trainer_results import Untrainable
from gymq.ext.nemo_gym.addresses import DEFAULT_HEAD_PORT

Seconds = Annotated[float, pydantic.Field(gt=0, le=30 * 24 * 3600)]


class BridgeSettings(pydantic.BaseModel):
    """Addresses, access and timeouts of a bridge."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"  # address to listen on
    port: Annotated[int, pydantic.Field(ge=1, le=65535)] = DEFAULT_HEAD_PORT  # of the head server and all prefixes
    name: Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9_-]{1,48}$")] | None = None  # default: host and port
    allowed_hosts: list[str] = []  # further names by which clients without a key reach it
    api_key: pydantic.SecretStr | None = None  # bearer token; None: every client that can connect may ask
    session_secret: pydantic.SecretStr | None = None  # signs session cookies; None: one that ends with the process
    session_max_age_s: Seconds = 24 * 3600.0  # of a session cookie
    max_body_bytes: Annotated[int, pydantic.Field(ge=1024, le=256 * 2**20)] = 256 * 2**20  # of one request
    body_timeout_s: Seconds = 300.0  # for a request to arrive
    rollout_timeout_s: Seconds = 3600.0  # from the moment an agent takes it
    queue_timeout_s: Seconds = 6 * 3600.0  # until an agent takes it
    model_timeout_s: Seconds = 1200.0  # for one model call
    call_timeout_s: Seconds = 600.0  # for one seed, tool call or verification
    heartbeat_s: Seconds | None = None  # blanks in front of a result while it is awaited; None: only where asked for
    on_untrainable: Untrainable = "error"  # what becomes of a rollout without token ids
    tokenizer: Path | None = None  # file or folder with the policy's tokenizer: the viewer shows tokens as text
    metrics: bool = False  # whether `/metrics` is served
    drain_s: Annotated[float, pydantic.Field(ge=0)] = 30.0  # for requests in flight when the bridge stops

    @pydantic.field_validator("api_key", "session_secret")
    @classmethod
    def _check_secret(cls, secret: pydantic.SecretStr | None) -> pydantic.SecretStr | None:
        if secret is not None and len(secret.get_secret_value()) < 16:
            raise ValueError("a secret needs at least 16 characters")
        return secret


def settings_of(tree: dict[str, Any]) -> BridgeSettings:
    """Return the settings in a configuration; `head_server` gives host and port where `bridge` does not.

    Raises:
        pydantic.ValidationError: a field is invalid.
    """
    head = tree.get("head_server") or {}
    defaults = {name: head[name] for name in ("host", "port") if head.get(name) is not None}
    return BridgeSettings.model_validate({**defaults, **(tree.get("bridge") or {})})
