"""From the model calls of a rollout, captured in any order, to chains of tokens that can be trained on.

A chain is a sequence of calls in which every prompt begins with the previous prompt and what was generated from it.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gymq.data.records import NotTrainable
from gymq.protocol.tokens import GENERATION_FIELD, LOG_PROB_FIELD, PROMPT_FIELD
from gymq.responses.errors import InvalidRequest, checked
from gymq.responses.items import Item
from gymq.responses.tokens import ROUTED_EXPERTS, token_fields

_SCHEMA_VERSION = 1


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One captured model call."""

    rollout_id: str
    model_call_id: str
    prompt_token_ids: Any
    generation_token_ids: Any
    generation_log_probs: Any
    created_at: float
    output_items: list[dict[str, Any]] = msgspec.field(default_factory=list)
    token_item_index: int | None = None
    """The output item that carries the tokens; None: the capture does not name it."""
    routed_experts: Any = None
    schema_version: int = _SCHEMA_VERSION


@dataclass(frozen=True)
class Link:
    """A call in a chain, and the prompt tokens between the end of the previous call and its own generation."""

    call: ModelCall
    interstitial: Sequence[int]


@dataclass(frozen=True)
class Chain:
    """Calls in order; the first has `root_prompt` as its prompt."""

    chain_id: str
    root_prompt: Sequence[int]
    links: list[Link]


@dataclass(frozen=True)
class Chains:
    """The result of chaining the captured calls of a rollout."""

    chains: list[Chain]
    quarantined: list[str]
    """Sorted ids of calls that are left out because their parent is ambiguous."""
    notes: dict[str, Any]
    """Counts that are stored with the result."""

    @property
    def main(self) -> Chain | None:
        """The chain to train on; None without a chain, or if no chain is preferable."""
        if self.notes["builder"] == "per_request":
            return self.chains[0] if len(self.chains) == 1 else None
        return next((chain for chain in self.chains if chain.chain_id == "main"), None)

    def mask_sample(self, *, capture_complete: bool) -> bool:
        """Return whether the rollout must be kept out of the loss: only a complete, unambiguous capture may train."""
        notes = self.notes
        roots = notes.get("roots", notes["chains"])
        clean = roots == 1 and notes["chains"] == 1 and not notes.get("unresolved_retries")
        return not (capture_complete and clean)


def build_chains(entries: Sequence[Mapping[str, Any]], builder: str = "prefix_merging") -> Chains:
    """Chain the captured model calls of one rollout.

    Args:
        entries: the calls (see `ModelCall` for the fields), in any order.
        builder: `prefix_merging` joins calls whose prompts continue one another; `per_request` joins nothing.

    Raises:
        InvalidRequest: an entry does not fit, the entries belong to several rollouts, or the builder is unknown.
    """
    calls = [_model_call(entry, f"entries[{index}]") for index, entry in enumerate(entries)]
    if len({call.rollout_id for call in calls}) > 1:
        raise InvalidRequest("entries", "expected the calls of one rollout, got several rollout ids")
    calls.sort(key=lambda call: (len(call.prompt_token_ids), call.model_call_id))
    if builder == "per_request":
        chains = [Chain(f"req-{i}", call.prompt_token_ids, [_root(call)]) for i, call in enumerate(calls)]
        return Chains(chains, [], {"builder": builder, "chains": len(chains)})
    if builder != "prefix_merging":
        raise InvalidRequest("builder", f"{builder!r} is not a builder; expected prefix_merging or per_request")
    return _merge(calls)


def project_response(built: Chains, model: str) -> Item:
    """Return the main chain as a Responses object whose items carry the tokens of their calls.

    Raises:
        NotTrainable: there is no main chain, or it has no generated tokens.
    """
    chain = built.main
    if chain is None:
        raise NotTrainable("the captured model calls give no single chain that is safe to train on")
    calls = [link.call for link in chain.links]
    generated = sum(len(call.generation_token_ids) for call in calls)
    if not generated:
        raise NotTrainable("the captured model calls generated no tokens")
    return {
        "id": f"proj-{calls[0].rollout_id}",
        "object": "response",
        "model": model,
        "output": [item for call in calls for item in _items_with_tokens(call)],
        "usage": {"input_tokens": len(chain.root_prompt), "output_tokens": generated},
    }


def _model_call(entry: Mapping[str, Any], path: str) -> ModelCall:
    try:
        call = checked(entry, ModelCall)
        tokens = token_fields(entry)
    except InvalidRequest as error:
        raise error.within(path) from None
    if tokens is None:
        raise InvalidRequest(f"{path}.{PROMPT_FIELD}", "missing in a captured call")
    if call.schema_version > _SCHEMA_VERSION:
        raise InvalidRequest(f"{path}.schema_version", f"{call.schema_version} is newer than {_SCHEMA_VERSION}")
    if len(tokens[GENERATION_FIELD]) != len(tokens[LOG_PROB_FIELD]):
        raise InvalidRequest(f"{path}.{LOG_PROB_FIELD}", "expected one for each generated token")
    if call.token_item_index is not None and not 0 <= call.token_item_index < len(call.output_items):
        raise InvalidRequest(f"{path}.token_item_index", f"{call.token_item_index} is outside of output_items")
    return msgspec.structs.replace(call, **tokens)


@dataclass
class _Node:
    """A call in the tree of calls."""

    call: ModelCall
    prompt: bytes
    sequence: bytes
    """Prompt and generation, packed so that prefixes are compared at the speed of memcmp."""
    parent: _Node | None = None
    children: list[_Node] = field(default_factory=list)
    quarantined: bool = False

    def path(self) -> list[_Node]:
        """Return the nodes from the root to this one."""
        nodes = [self]
        while nodes[-1].parent is not None:
            nodes.append(nodes[-1].parent)
        return nodes[::-1]


def _merge(calls: list[ModelCall]) -> Chains:
    empty = sorted(call.model_call_id for call in calls if not len(call.generation_token_ids))
    nodes = _tree([call for call in calls if len(call.generation_token_ids)])
    unresolved = _quarantine_retries(nodes)
    chains = _chains([node.path() for node in nodes if not node.children])

    captured = sum(len(node.call.generation_token_ids) for node in nodes)
    main = next((chain for chain in chains if chain.chain_id == "main"), None)
    delivered = sum(len(link.call.generation_token_ids) for link in main.links) if main else 0
    notes = {
        "builder": "prefix_merging",
        "roots": sum(node.parent is None for node in nodes),
        "chains": len(chains),
        "generated_tokens_captured": captured,
        "generated_tokens_delivered": delivered,
        "delivered_fraction": round(delivered / captured, 4) if captured else 0.0,
        "unresolved_retries": unresolved,
        "empty_generation_calls": empty,
    }
    return Chains(chains, sorted(node.call.model_call_id for node in nodes if node.quarantined), notes)


def _tree(calls: list[ModelCall]) -> list[_Node]:
    """Give each call as its parent the one whose sequence is the longest prefix of its prompt.

    The calls come sorted by the length of their prompts, so a parent comes before its children. A call that could
    continue several calls with the very same sequence is quarantined: which one it continued is unknown.
    """
    nodes: list[_Node] = []
    by_sequence: dict[bytes, list[_Node]] = {}
    longest_first: list[tuple[int, bytes]] = []
    for call in calls:
        prompt = _packed(call.prompt_token_ids)
        node = _Node(call, prompt, prompt + _packed(call.generation_token_ids))
        for _, sequence in longest_first:
            if prompt.startswith(sequence):
                candidates = by_sequence[sequence]
                node.parent = candidates[0]
                node.parent.children.append(node)
                node.quarantined = len(candidates) > 1
                break
        if node.sequence not in by_sequence:
            insort(longest_first, (-len(node.sequence), node.sequence))
        by_sequence.setdefault(node.sequence, []).append(node)
        nodes.append(node)
    return nodes


def _quarantine_retries(nodes: list[_Node]) -> list[str]:
    """Of calls with the same prompt, keep those that were continued; return the ids of undecided groups, sorted.

    The same prompt means the same parent, so a group is a call and its retries.
    """
    groups: dict[bytes, list[_Node]] = {}
    for node in nodes:
        groups.setdefault(node.prompt, []).append(node)
    unresolved: list[str] = []
    for group in groups.values():
        if len(group) == 1:
            continue
        kept = [node for node in group if not all(child.quarantined for child in node.children)]
        if not kept:
            unresolved += [node.call.model_call_id for node in group]
            kept = [min(group, key=lambda node: node.call.model_call_id)]
        for node in group:
            node.quarantined = node.quarantined or all(node is not other for other in kept)
    return sorted(unresolved)


def _chains(paths: list[list[_Node]]) -> list[Chain]:
    safe = [path for path in paths if not any(node.quarantined for node in path)]
    if not safe:
        return []
    main = min(safe, key=lambda path: (path[0].call.created_at, path[0].call.model_call_id))
    branches = [path for path in safe if path is not main]
    named = [("main", main), *((f"branch-{index}", path) for index, path in enumerate(branches))]
    return [Chain(name, path[0].call.prompt_token_ids, [_link(node) for node in path]) for name, path in named]


def _link(node: _Node) -> Link:
    if node.parent is None:
        return _root(node.call)
    parent = node.parent.call
    return Link(
        node.call, node.call.prompt_token_ids[len(parent.prompt_token_ids) + len(parent.generation_token_ids) :]
    )


def _root(call: ModelCall) -> Link:
    return Link(call, call.prompt_token_ids[:0])


def _packed(token_ids: Sequence[int]) -> bytes:
    try:
        return array("i", token_ids).tobytes()
    except OverflowError:
        raise InvalidRequest("entries", "a token id does not fit into 32 bits") from None


def _items_with_tokens(call: ModelCall) -> list[Item]:
    """Return copies of the call's output items, with its tokens on the one that carries them."""
    items = [dict(item) for item in call.output_items] or [{"type": "message"}]
    if call.token_item_index is not None:
        carriers = [items[call.token_item_index]]
    else:
        carriers = [item for item in items if item.get(GENERATION_FIELD)] or items[-1:]
    for item in carriers:
        # The prompt is the running prompt of the chain: every link begins with all that came before it.
        item[PROMPT_FIELD] = call.prompt_token_ids
        item[GENERATION_FIELD] = call.generation_token_ids
        item[LOG_PROB_FIELD] = call.generation_log_probs
        if call.routed_experts is not None:
            item[ROUTED_EXPERTS] = call.routed_experts
    return items
