"""Facts at the end of a collection beside its statistics: duration, tokens, truncated replies, retries."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

import msgspec

from gymq.bus.rpc.process_reports import TokenCount
from gymq.render import shown_seconds
from gymq.runs.collection.progress import Progress
from gymq.stats.running import ProfileSnapshot


class RunSummary(msgspec.Struct, frozen=True):
    """Facts of a run; tokens and truncated replies are those of its files, the others those of this start."""

    duration_s: float
    input_tokens: int
    output_tokens: int
    other_models: dict[str, TokenCount]  # tokens of models that are not the policy, such as judges
    truncated: int  # replies that reached the limit of output tokens
    retried: int  # attempts at rollouts that were made again
    model_retries: int  # requests to endpoints that were sent again

    def lines(self) -> Iterator[str]:
        """Yield sentences for people."""
        policy = TokenCount(self.input_tokens, self.output_tokens)
        parts = [f"took {shown_seconds(self.duration_s)}"]
        parts += [f"tokens of rewarded rollouts: {_tokens(policy)}"] if policy.total else []
        parts += [f"{name} {_tokens(count)}" for name, count in sorted(self.other_models.items()) if count.total]
        yield "; ".join(parts)
        if self.truncated:
            replies = "1 reply was" if self.truncated == 1 else f"{self.truncated:,} replies were"
            yield f"{replies} truncated at the limit of output tokens (--max-tokens)"
        retries = (self.retried, "rollouts"), (self.model_retries, "model calls")
        if shown := [f"{count:,} of {what}" for count, what in retries if count]:
            yield f"retries: {', '.join(shown)}"


def summary_of(progress: Progress, snapshot: ProfileSnapshot, truncated: int, policies: Collection[str]) -> RunSummary:
    """Return the facts of a run that has just ended.

    Args:
        progress: of this start.
        snapshot: statistics of the files of the run.
        truncated: replies in them that reached the limit of output tokens.
        policies: names of the models that are asked as the policy.
    """
    totals = {name: _total(snapshot, name) for name in ("input_tokens", "output_tokens")}
    return RunSummary(
        duration_s=time.monotonic() - progress.started,
        **totals,
        other_models={name: count for name, count in progress.model_tokens.items() if name not in policies},
        truncated=truncated,
        retried=progress.retried,
        model_retries=progress.model_retries,
    )


def _total(snapshot: ProfileSnapshot, name: str) -> int:
    stats = [agent.fields[name] for agent in snapshot.agents.values() if name in agent.fields]
    return round(sum(one.count * one.mean for one in stats if one.mean is not None))


def _tokens(count: TokenCount) -> str:
    return f"{count.input:,} in, {count.output:,} out"
