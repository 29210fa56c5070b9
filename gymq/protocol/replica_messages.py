"""The messages about the replicas of a model: their load, new weights, and rollouts that are held back for these."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gymq.protocol.messages import Digest, Index, Message, Token

PolicyVersion = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Load(Message, tag="load.v1", kw_only=True):
    """The load of a model worker; published about once a second, and when it changes."""

    worker: Token
    running: Index
    waiting: Index
    kv_cache_use: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    kv_cache_tokens: Index = 0  # that its cache holds between calls; 0: unknown, or none
    num_callers: Index = 0  # processes that asked it lately


class Weights(Message, tag="weights.v1", kw_only=True):
    """The newest weights of a model: at a path that its workers can read, or `parts` messages of the stream WEIGHTS.

    With neither, its engines were given them by someone else.
    """

    policy_version: PolicyVersion
    mode: Literal["keep", "wait", "abort"] = "keep"
    in_flight: Literal["continue", "restart", "finish"] = "continue"
    path: str | None = None
    push: Token | None = None  # the parts are `gym.weights.<model>.<push>.<n>`
    parts: Index = 0
    num_bytes: Index = 0
    sha256: Digest | None = None
    engines: list[str] = msgspec.field(default_factory=list)  # URLs of those that answer; empty: as configured
    before: list[str] = msgspec.field(default_factory=list)  # the versions before this one, the newest last
    restarted: PolicyVersion | None = None  # the newest version with `restart`, up to this one
    finished: PolicyVersion | None = None  # the newest version with `finish`, up to this one
    at: float = 0.0  # Unix time, seconds

    def __post_init__(self) -> None:
        if self.in_flight == "restart":
            self.restarted = self.policy_version
        elif self.in_flight == "finish":
            self.finished = self.policy_version


class Hold(Message, tag="hold.v1", kw_only=True):
    """An update of a model begins: agents wait with the first calls of rollouts until it is over."""

    for_s: Annotated[float, msgspec.Meta(ge=0, le=60)]  # from now on, unless another message comes; 0: it is over
