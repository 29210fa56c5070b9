"""The trainable items of a response: one chain of calls in which each prompt continues the previous call.

Trainers join the calls of a rollout into one sequence, so a prompt that does not begin with all previous tokens cannot
be part of it. Only the calls of one chain keep their tokens; other chains, of sub-agents, edited histories and replies
other than the best of several, become branches: separate sequences.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gymq.data.failure_status import StatusError
from gymq.protocol.messages import FailureClass
from gymq.protocol.tokens import (
    GENERATION_FIELD,
    PROMPT_FIELD,
    SAMPLING_FIELD,
    TOKEN_FIELDS,
    VERSIONS_FIELD,
    CallTokens,
    ContinuedPrompt,
)
from gymq.responses.tokens import OPTIONAL_TOKEN_FIELDS, ROUTED_EXPERTS

Item = dict[str, Any]


@dataclass
class _Chain:
    """Calls that continue one another."""

    last: CallTokens | None = None
    seen: bytearray = field(default_factory=bytearray)  # prompt and generation of the last call
    num_generated: int = 0
    positions: list[int] = field(default_factory=list)  # of its items in the output


@dataclass(frozen=True)
class Branch:
    """Calls that continue one another, apart from the chain whose tokens are in the output.

    Tokens that it shares with another chain are part of its prompt, so every token is sampled in one sequence only.
    """

    token_ids: array[int]
    generated: list[tuple[int, int]]  # half-open stretches that were sampled
    log_probs: array[float]  # of the sampled tokens
    routed_experts: Any = None  # of the last call
    policy_versions: list[Any] = field(default_factory=list)  # that sampled them, as in `VERSIONS_FIELD`
    sampling: list[dict[str, Any]] = field(default_factory=list)  # of each call, as in `SAMPLING_FIELD`


@dataclass(frozen=True)
class Trainable:
    """An output where only one chain has tokens."""

    output: list[Item]
    num_calls: int  # with tokens
    dropped_calls: int  # whose tokens were removed
    branches: list[Branch] = field(default_factory=list)  # of the dropped calls


def one_chain(output: Sequence[Item]) -> Trainable:
    """Return the output with the tokens of its best chain only.

    The best chain has the most generated tokens, and is the first such chain. Items with an empty generation lose their
    token fields.

    Raises:
        StatusError: 500; an item has only some of its token fields, or not a log prob for each token.
    """
    items = [dict(item) for item in output]
    chains: list[_Chain] = []
    for position, item in enumerate(items):
        if not _has_tokens(item, f"output[{position}]"):
            _strip(item)
            continue
        tokens = CallTokens(item[PROMPT_FIELD], item[GENERATION_FIELD])
        chain = _continued(chains, tokens.prompt)
        if chain is None:
            chain = _Chain()
            chains.append(chain)
        if isinstance(tokens.prompt, ContinuedPrompt) and tokens.prompt.continues(chain.last):
            chain.seen += _packed(tokens.prompt.suffix)
        else:
            chain.seen = bytearray(_packed(tokens.prompt))
        chain.seen += _packed(tokens.generation)
        chain.last = tokens
        chain.num_generated += len(tokens.generation)
        chain.positions.append(position)
    if not chains:
        return Trainable(items, 0, 0)
    best = max(chains, key=lambda chain: chain.num_generated)
    others = [[items[position] for position in chain.positions] for chain in chains if chain is not best]
    branches = [_branch(calls) for calls in others]
    for calls in others:
        for item in calls:
            _strip(item)
    return Trainable(items, len(best.positions), sum(map(len, others)), branches)


def _continued(chains: Sequence[_Chain], prompt: Sequence[int]) -> _Chain | None:
    """Return the longest chain that a prompt continues. Of a prompt that refers to a chain, only the rest is read."""
    begun = next((one for one in chains if isinstance(prompt, ContinuedPrompt) and prompt.continues(one.last)), None)
    if begun is None:
        ids = _packed(prompt)
        continued = [one for one in chains if ids.startswith(one.seen)]
    else:
        assert isinstance(prompt, ContinuedPrompt)
        rest, length = _packed(prompt.suffix), len(begun.seen)
        possible = (one for one in chains if length <= len(one.seen) <= length + len(rest))
        continued = [
            one
            for one in possible
            if one is begun or (one.seen.startswith(begun.seen) and rest.startswith(one.seen[length:]))
        ]
    return max(continued, key=lambda one: len(one.seen), default=None)


def _branch(calls: Sequence[Item]) -> Branch:
    branch = Branch(array("i"), [], array("d"), calls[-1].get(ROUTED_EXPERTS))
    for call in calls:
        branch.token_ids.extend(array("i", call["prompt_token_ids"][len(branch.token_ids) :]))
        start = len(branch.token_ids)
        branch.token_ids.extend(array("i", call["generation_token_ids"]))
        branch.generated.append((start, len(branch.token_ids)))
        branch.log_probs.extend(array("d", call["generation_log_probs"]))
        branch.sampling.append(call.get(SAMPLING_FIELD) or {})
        branch.policy_versions.extend(call.get(VERSIONS_FIELD) or [(None, len(call["generation_token_ids"]))])
    if not any(version for version, _ in branch.policy_versions):
        branch.policy_versions.clear()
    return branch


def _has_tokens(item: Item, where: str) -> bool:
    """Return whether an item carries tokens that were sampled."""
    present = [name for name in TOKEN_FIELDS if item.get(name) is not None]
    generation = item.get("generation_token_ids")
    if not present or (generation is not None and not len(generation)):
        return False
    if len(present) < len(TOKEN_FIELDS):
        missing = ", ".join(name for name in TOKEN_FIELDS if name not in present)
        raise _broken(f"{where} has {', '.join(present)} without {missing}")
    num_log_probs = len(item["generation_log_probs"])
    if num_log_probs != len(item["generation_token_ids"]):
        raise _broken(f"{where} has {num_log_probs} log probs for {len(item['generation_token_ids'])} tokens")
    return True


def _broken(message: str) -> StatusError:
    return StatusError(500, str(FailureClass.MODEL_FAILED), message, stage="model")


def _strip(item: Item) -> None:
    for name in (*TOKEN_FIELDS, *OPTIONAL_TOKEN_FIELDS):
        item.pop(name, None)


def _packed(ids: Sequence[int]) -> bytes:
    return ids.tobytes() if isinstance(ids, array | ContinuedPrompt) else array("i", ids).tobytes()
