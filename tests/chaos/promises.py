"""The promises, checked against what a chaos run left behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from gymq.protocol.messages import Outcome, VerifiedRollout
from tests.releases.later import STARTED

from .experiment import Call, Key, Remains
from .fault_injector import LONGEST_FREEZE_S
from .scenario import REPEATS, Scenario

TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


@dataclass(frozen=True)
class Verdict:
    """How far the promises were kept. All counts but `repeated` should be 0."""

    rollouts: int
    faults: Counter[str]
    seconds: float
    lost: int  # rollouts without an outcome in the stream or without a line in the output file
    doubled: int  # outcomes or lines too many
    wrong: int  # rewards that are not those of a run without faults
    wrong_tokens: int  # rollouts whose ids or log probs are not those of a run without faults
    executed_twice: int  # tool calls
    repeated: int  # model calls beyond those needed
    unexplained: int  # of these, more in one rollout than faults during its life
    left_over: int  # tasks still queued
    misprofiled: int  # rollouts missing or too many in the live profile
    started: int  # worker processes
    of_later: int  # of these, of a later release
    failures: Counter[str]  # attempts that ended with a failure and were made again by the next start of the collector

    @property
    def kept(self) -> bool:
        broken = (self.lost, self.doubled, self.wrong, self.wrong_tokens, self.executed_twice, self.unexplained)
        return not any((*broken, self.left_over, self.misprofiled))

    def __str__(self) -> str:
        hit = sum(self.faults.values())
        per_fault = self.repeated / max(1, hit)
        return (
            f"{self.rollouts} rollouts in {self.seconds:.0f} s; {hit} faults ({_listed(self.faults)}); "
            f"lost {self.lost}, doubled {self.doubled}, wrong rewards {self.wrong}, "
            f"wrong tokens {self.wrong_tokens}, tool calls executed twice {self.executed_twice}, "
            f"model calls repeated {self.repeated} ({per_fault:.1f} a fault; {self.unexplained} of them unexplained), "
            f"left in the queue {self.left_over}, missing in the profile {self.misprofiled}; "
            f"{self.started} worker processes, {self.of_later} of them of a later release; "
            f"failures tried again {sum(self.failures.values())} ({_listed(self.failures)})"
        )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(counts.items())) or "none"


def judge(scenario: Scenario, remains: Remains) -> Verdict:
    """Compare what is there with what should be there."""
    rows, grades = scenario.rows(), scenario.grades
    expected = {(task, rollout): grade for task, grade in enumerate(grades) for rollout in range(REPEATS)}
    stored = Counter((outcome.task_index, outcome.rollout_index) for outcome in remains.outcomes)
    written = Counter(key for key, _ in remains.rewards)
    rewards = [
        ((outcome.task_index, outcome.rollout_index), outcome.reward if isinstance(outcome, VerifiedRollout) else None)
        for outcome in remains.outcomes
    ]
    return Verdict(
        rollouts=len(expected),
        faults=Counter(fault.what for fault in remains.faults),
        seconds=remains.seconds,
        lost=len(expected.keys() - stored.keys()) + len(expected.keys() - written.keys()),
        doubled=sum((stored - Counter(expected.keys())).values()) + sum((written - Counter(expected.keys())).values()),
        wrong=sum(expected.get(key) != reward for key, reward in [*rewards, *remains.rewards]),
        wrong_tokens=sum(not _has_its_tokens(outcome, rows[outcome.task_index]) for outcome in remains.outcomes),
        executed_twice=sum(count - 1 for count in remains.tools.values()),
        repeated=sum(_repeated(_by_try(remains)).values()),
        unexplained=_unexplained(remains),
        left_over=remains.queued,
        misprofiled=abs(len(expected) - remains.profiled),
        started=remains.started,
        of_later=sum(entry["message"] == STARTED for entry in remains.worker_logs),
        failures=Counter(what for _, what in remains.failures),
    )


def _has_its_tokens(outcome: Outcome, row: dict[str, Any]) -> bool:
    """Return whether each call of a rewarded rollout has the tokens that the row scripts, after all those before."""
    if not isinstance(outcome, VerifiedRollout):
        return True
    calls = [item for item in outcome.response["output"] if "generation_token_ids" in item]
    found = [tuple(list(item[name]) for name in TOKEN_FIELDS) for item in calls]
    expected = []
    prompt: list[int] = []
    for between, sampled in zip(row["between"], row["sampled"], strict=True):
        prompt = prompt + between
        expected.append((prompt, sampled, [-token / 1024 for token in sampled]))
        prompt = prompt + sampled
    return found == expected


def _by_try(remains: Remains) -> dict[tuple[Key, int], list[Call]]:
    """Return the model calls of each rollout and each time it was tried: after a failure it starts over, on purpose."""
    failed = Counter(rollout for rollout, _ in remains.failures)
    of_rollout: dict[Key, list[Call]] = {}
    for call in remains.calls:
        of_rollout.setdefault(call.rollout, []).append(call)
    tries: dict[tuple[Key, int], list[Call]] = {}
    for rollout, calls in of_rollout.items():
        number, before = 0, calls[0]
        for call in calls:
            starts_over = (call.attempt, call.turn) == (0, 0) != (before.attempt, before.turn)
            number += starts_over and number < failed[rollout]
            tries.setdefault((rollout, number), []).append(call)
            before = call
    return tries


def _repeated(tries: dict[tuple[Key, int], list[Call]]) -> Counter[tuple[Key, int]]:
    """Return how many model calls of each try had been made before, in the same attempt and turn."""
    repeated = {
        which: len(calls) - len({(call.attempt, call.turn) for call in calls}) for which, calls in tries.items()
    }
    return +Counter(repeated)


def _unexplained(remains: Remains) -> int:
    """A fault may cost a rollout the one call in flight; a process that repeats more has forgotten something."""
    tries = _by_try(remains)
    unexplained = 0
    for which, count in _repeated(tries).items():
        first, last = tries[which][0].begin, tries[which][-1].begin
        hits = sum(first - LONGEST_FREEZE_S - 0.5 <= fault.at <= last for fault in remains.faults)
        unexplained += max(0, count - hits)
    return unexplained
