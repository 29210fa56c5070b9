"""Facts at the end of a collection beside its statistics: duration, tokens, truncated replies, retries."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

import msgspec

from gymq.protocol.messages import JUDGE_INPUT_TOKENS, JUDGE_OUTPUT_TOKENS
from gymq.render import say, shown_seconds
from gymq.runs.collection.progress import Progress
from gymq.runs.older_rewards import OlderRewards
from gymq.stats.running import ProfileSnapshot


class RunSummary(msgspec.Struct, frozen=True):
    """Facts of a run; tokens and truncated replies are those of its files, the others those of this start.

    Tokens are of rewarded rollouts: those of the policy, and apart from them those of judges, whichever model judges.
    """

    duration_s: float
    input_tokens: int
    output_tokens: int
    judge_input_tokens: int
    judge_output_tokens: int
    truncated: int  # replies that reached the limit of output tokens
    retried: int  # attempts at rollouts that were made again
    model_retries: int  # requests to endpoints that were sent again

    def lines(self) -> Iterator[str]:
        """Yield sentences for people."""
        parts = [f"took {shown_seconds(self.duration_s)}"]
        for what, read, written in (
            ("tokens of rewarded rollouts", self.input_tokens, self.output_tokens),
            ("judge", self.judge_input_tokens, self.judge_output_tokens),
        ):
            parts += [f"{what}: {read:,} in, {written:,} out"] if read or written else []
        yield "; ".join(parts)
        if self.truncated:
            replies = "1 reply was" if self.truncated == 1 else f"{self.truncated:,} replies were"
            yield f"{replies} truncated at the limit of output tokens (--max-tokens)"
        retries = (self.retried, "rollouts"), (self.model_retries, "model calls")
        if shown := [f"{count:,} of {what}" for count, what in retries if count]:
            yield f"retries: {', '.join(shown)}"


def summary_of(progress: Progress, snapshot: ProfileSnapshot, truncated: int) -> RunSummary:
    """Return the facts of a run that has just ended.

    Args:
        progress: of this start.
        snapshot: statistics of the files of the run.
        truncated: replies in them that reached the limit of output tokens.
    """
    names = ("input_tokens", "output_tokens", JUDGE_INPUT_TOKENS, JUDGE_OUTPUT_TOKENS)
    totals = {name: _total(snapshot, name) for name in names}
    return RunSummary(
        duration_s=time.monotonic() - progress.started,
        **totals,
        truncated=truncated,
        retried=progress.retried,
        model_retries=progress.model_retries,
    )


def print_older_rewards(found: Iterable[OlderRewards]) -> None:
    """Print on standard error which rewards are older than their verifier's file; commands are never broken."""
    for one in found:
        say(one.sentence)
        print(f"  {one.command}", file=sys.stderr)


def _total(snapshot: ProfileSnapshot, name: str) -> int:
    stats = [agent.fields[name] for agent in snapshot.agents.values() if name in agent.fields]
    return round(sum(one.count * one.mean for one in stats if one.mean is not None))
