"""From a result to one sequence of tokens."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gymq.data.routed_experts import read_experts
from gymq.errors import GymqError
from gymq.protocol.tokens import SAMPLING_FIELD, VERSIONS_FIELD, CallTokens, ContinuedPrompt
from gymq.responses.items import incomplete_reason
from gymq.responses.tokens import ROUTED_EXPERTS

SpanKind = Literal["prompt", "generation", "observation"]
Stretch = Sequence[Any]  # a policy version, or None, and a number of tokens


class NotTrainable(GymqError, ValueError):
    """A result has no sequence to train on."""


@dataclass(frozen=True)
class Span:
    """A stretch of tokens of one kind, half-open."""

    start: int
    end: int
    kind: SpanKind


@dataclass(frozen=True)
class Record:
    """One rollout as a trainer needs it.

    Attributes:
        token_ids: prompt, generations and the tokens between them, in order.
        spans: the kind of each stretch; they cover all tokens.
        log_probs: one for each token, of the sampled ones; 0.0 elsewhere.
        reward_components: parts of the reward by name; empty if the verifier names none.
        mask: keep the rollout in the baseline of its group, and out of the loss.
        finish: why the engine stopped, if it cut the rollout short.
        routed_experts: experts of the tokens of each call, its prompt included, as the engine gave them; of a branch,
            those of its last call only. Empty if there are none, or not for each call.
        policy_versions: one for each token, of the policy that sampled it; None elsewhere, and where it is not known.
            Empty if the model has no versions.
        sampling: what each generation was sampled with (`gymq.protocol.sampling`), empty where it was not recorded.
    """

    token_ids: list[int]
    spans: list[Span]
    log_probs: list[float]
    reward: float
    reward_components: dict[str, float] = field(default_factory=dict)
    mask: bool = False
    finish: str | None = None
    routed_experts: list[Any] = field(default_factory=list)
    policy_versions: list[str | None] = field(default_factory=list)
    sampling: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Record:
        """Return the record of a result of `/run`, with lists of tokens or packed ones.

        Raises:
            NotTrainable: no item has tokens, or a prompt does not begin with everything before it.
        """
        token_ids: list[int] = []
        log_probs: list[float] = []
        spans: list[Span] = []
        stretches: list[Stretch] = []
        routed_experts: list[Any] = []
        sampling: list[dict[str, Any]] = []
        before: CallTokens | None = None
        for item in result["response"]["output"]:
            generation = item.get("generation_token_ids")
            if not generation:
                continue
            added = _added(item["prompt_token_ids"], token_ids, before)
            before = CallTokens(item["prompt_token_ids"], generation)
            start = len(token_ids) + len(added)
            spans.append(Span(len(token_ids), start, "observation" if spans else "prompt"))
            spans.append(Span(start, start + len(generation), "generation"))
            log_probs += [0.0] * len(added)
            log_probs += item["generation_log_probs"]
            token_ids += added
            token_ids += generation
            stretches += item.get(VERSIONS_FIELD) or [(None, len(generation))]
            routed_experts.append(item.get(ROUTED_EXPERTS))
            sampling.append(item.get(SAMPLING_FIELD) or {})
        if not spans:
            raise NotTrainable("no item of the response has token ids")
        if None in routed_experts:
            routed_experts.clear()
        versions = _versions(spans, stretches)
        return cls(
            token_ids,
            spans,
            log_probs,
            **_of_rollout(result),
            routed_experts=routed_experts,
            policy_versions=versions,
            sampling=sampling,
        )

    @classmethod
    def branches_of(cls, result: Mapping[str, Any]) -> list[Record]:
        """Return a record for each chain of calls that `of` leaves out, with the reward of the rollout.

        These are calls of sub-agents, calls after an edited history, and replies other than the best of several. Tokens
        that a branch shares with another sequence are part of its prompt, so every sampled token is trained on once.
        """
        records = []
        for branch in (result.get("gymq") or {}).get("branches") or ():
            spans: list[Span] = []
            log_probs: list[float] = []
            sampled = iter(branch["log_probs"])
            for start, end in branch["generated"]:
                before = len(log_probs)
                spans += (Span(before, start, "observation" if spans else "prompt"), Span(start, end, "generation"))
                log_probs += [0.0] * (start - before)
                log_probs += [next(sampled) for _ in range(start, end)]
            records.append(
                cls(
                    list(branch["token_ids"]),
                    spans,
                    log_probs,
                    **_of_rollout(result),
                    routed_experts=[] if branch["routed_experts"] is None else [branch["routed_experts"]],
                    policy_versions=_versions(spans, branch.get("policy_versions") or ()),
                    sampling=branch["sampling"],
                )
            )
        return records

    @property
    def num_turns(self) -> int:
        """Model calls."""
        return len(self.generations)

    @property
    def generations(self) -> list[Span]:
        return [span for span in self.spans if span.kind == "generation"]

    @property
    def prompt_ids(self) -> list[int]:
        """The first prompt."""
        return self.token_ids[: self.spans[0].end]

    def behind_prompt(self, values: Sequence[Any]) -> list[Any]:
        """Return the values after the first prompt, of a list with one value for each token."""
        return list(values[self.spans[0].end :])

    def is_sampled(self) -> list[int]:
        """Return 1 for each token that was sampled, 0 for the others."""
        return [int(span.kind == "generation") for span in self.spans for _ in range(span.start, span.end)]

    def experts(self) -> Any:
        """Return the experts that each token was routed to when a call first read it; None if there are none.

        Returns:
            A NumPy array of integers of the shape [tokens, layers, K], which may lack the last token: no call read it.

        Raises:
            NotTrainable: they do not fit the tokens, or have a form that is not known.
        """
        if not self.routed_experts:
            return None
        ends = [span.end for span in self.generations[-len(self.routed_experts) :]]
        # The last token of a call is read by the next one.
        starts = [0, *(end - 1 for end in ends[:-1])]
        stops = [*starts[1:], len(self.token_ids)]
        try:
            parts = [
                read_experts(given, end)[start:stop]
                for given, end, start, stop in zip(self.routed_experts, ends, starts, stops, strict=True)
            ]
            return importlib.import_module("numpy").concatenate(parts)
        except ValueError as error:
            raise NotTrainable(str(error)) from None


def _added(prompt: Any, token_ids: list[int], before: CallTokens | None) -> Sequence[int]:
    """Return the tokens of a prompt after those of the sequence so far."""
    if isinstance(prompt, ContinuedPrompt) and prompt.continues(before):
        return prompt.suffix
    whole: list[int] = prompt if isinstance(prompt, list) else prompt.tolist()
    if whole[: len(token_ids)] != token_ids:
        raise NotTrainable("a prompt does not begin with the prompt and the generation before it")
    return whole[len(token_ids) :]


def _versions(spans: Sequence[Span], stretches: Sequence[Stretch]) -> list[str | None]:
    """Return the version for each token; sampled tokens have those of the stretches, in order."""
    if not any(version for version, _ in stretches):
        return []
    sampled = (version for version, count in stretches for _ in range(count))
    return [
        next(sampled, None) if span.kind == "generation" else None
        for span in spans
        for _ in range(span.start, span.end)
    ]


def _of_rollout(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that all records of a rollout share."""
    return {
        "reward": float(result["reward"]),
        "reward_components": dict(result.get("reward_components") or {}),
        "mask": bool(result.get("mask_sample")),
        "finish": incomplete_reason(result["response"]),
    }
