"""Model: what answers a Responses request, as an author writes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gymq.authoring import Worker
from gymq.defaults import WeightsMode
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass


@dataclass
class ModelMemory:
    """What a model keeps of a conversation from one call to the next, so that it need not look at all of it again.

    A conversation continues: its next input begins with the items of this call and the items of its reply. Without
    that, as in the first call, on another replica, or after the agent edited the conversation, nothing is remembered.
    """

    before: Any = None  # what the model kept in the call before; None: nothing is remembered
    kept: Any = None  # what `respond` keeps of this call


@dataclass(frozen=True)
class ModelRequest:
    """One model call."""

    params: dict[str, Any]  # parameters of an OpenAI Responses request, `input` always a list of items
    session: str  # calls with the same value share a prefix
    rollout: str  # for logs
    timeout_s: float  # seconds left for the answer
    memory: ModelMemory = field(default_factory=ModelMemory, compare=False)
    # The model adds what it samples the reply with, see `gymq.protocol.sampling`; it is stored with the tokens.
    sampling: dict[str, Any] = field(default_factory=dict, compare=False)
    # The model adds the policy versions that sampled the reply, the first one first, if it knows them; without, they
    # are those that it had before and after the call.
    versions: list[str] = field(default_factory=list, compare=False)


@dataclass(frozen=True)
class ModelLoad:
    """The load of the engine behind a replica."""

    running: int  # requests it works on
    waiting: int  # requests it has not begun
    kv_cache_use: float = 0.0  # share of the KV cache that is taken, 0 to 1
    kv_cache_tokens: int = 0  # that the KV cache holds, also between calls; 0: unknown, or it keeps no prefixes


@dataclass(frozen=True)
class WeightsUpdate:
    """New weights: a place that the replica can read, or the bytes themselves.

    With neither, they are announced: the engines that the replica asks have them.
    """

    policy_version: str
    path: str | None = None
    weights: bytes | None = None  # one file in the safetensors format
    # What becomes of requests that run: they continue with the new weights, are finished first, or are ended.
    mode: WeightsMode = "keep"
    engines: tuple[str, ...] = ()  # URLs of those that answer from now on; empty: those of the configuration

    @property
    def is_announced(self) -> bool:
        """Whether there is nothing to load."""
        return self.path is None and self.weights is None


class Model(Worker, ABC):
    """Answers Responses requests."""

    is_client: ClassVar[bool] = False  # of an endpoint: it holds no weights, so there may be one in each process
    # Of the weights that answer now. A model that knows it sets it in `start`; after `load_weights` gymq does.
    policy_version: str = ""
    # Whether someone else gives its engines their weights, so that their version is known only if it is announced.
    is_announced: bool = False

    @abstractmethod
    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        """Return a Responses object, with token ids and log probs as lists or packed arrays on the last output item.

        Raises:
            RolloutError: MODEL_FAILED; it says whether a retry may help.
        """

    async def probe(self, timeout_s: float) -> None:
        """Send the smallest request to what the model depends on, such as an endpoint. Optional.

        `gymq collect` calls it once before it starts a cluster, on a model that is not started.

        Raises:
            RolloutError: there was no answer; `curable` if there will be none before the configuration changes.
        """

    async def read_prompt(
        self, prompt: list[int] | dict[str, Any], num_log_probs: int, timeout_s: float
    ) -> dict[str, Any]:
        """Return the fields of `gymq.protocol.messages.PromptRead` that suit a prompt. Optional.

        Args:
            prompt: tokens, of which the log probs are asked for, or a chat with messages and tools, of which the ids
                are.
            num_log_probs: of the likeliest tokens at each place; -1: all.

        Raises:
            RolloutError: MODEL_FAILED; see `respond`.
        """
        raise RolloutError(FailureClass.MODEL_FAILED, f"{self.name} reads no prompts", retryable=False)

    def told_versions(self) -> Collection[str]:
        """Return the policy versions that its engines name, if someone else gives them their weights. Optional.

        Asked every few seconds, so it must not wait for anything.
        """
        return ()

    def load(self) -> ModelLoad | None:
        """Return the engine's load as last known; None: gymq counts the calls of this replica itself.

        Called several times a second, so it must not wait for anything.
        """
        return None

    def waits(self) -> Mapping[str, int]:
        """Return how many calls wait for something outside of this replica, by the reason in a few words. Optional.

        Such as `rate limited by HOST (429)`. Asked every few seconds, so it must not wait for anything.
        """
        return {}

    def num_retries(self) -> int:
        """Return how many requests this replica has sent again since it started. Optional."""
        return 0

    def oddities(self) -> Mapping[str, int]:
        """Return what was slightly off in what this replica was sent, and was read all the same, by its kind. Optional.

        Such as 12 `replies with another usage`, since it started; shown by `gymq status`.
        """
        return {}

    def share(self, index: int, of: int) -> None:
        """Take this replica's part of what all replicas have only once, such as a rate limit. Optional.

        Called before the first request, and whenever replicas come or go. What is on its way with the old part may end.

        Args:
            index: which of the replicas this is, from 0.
            of: how many live; 0: not known yet, as in the first seconds, and nothing is this one's.
        """

    async def load_weights(self, update: WeightsUpdate) -> None:
        """Answer with other weights from now on. Optional; called while `respond` runs, one update at a time.

        When it returns, every new request is answered by the new weights. When it raises, the old ones must remain in
        use.
        """
        raise NotImplementedError
