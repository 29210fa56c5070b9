"""What the check of a policy found: one line for each kind of call, and for the form of the sequences."""

from __future__ import annotations

import asyncio
import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gymq.data.records import NotTrainable, Record
from gymq.ext.policy_check.battery import ROWS, Ask, CheckedReply, PolicyRow, roll_out
from gymq.ext.policy_check.diagnosis import Compared, cause
from gymq.ext.policy_check.distribution import NotComparable, log_probs
from gymq.ext.policy_check.source import LogProbSource
from gymq.failures import RolloutError
from gymq.protocol.sampling import NEUTRAL

Verdict = Literal["ok", "differs", "not comparable"]
MOST_ENDS = 4  # different last tokens of replies that ended, where the ids that end a reply are not known


@dataclass(frozen=True)
class Finding:
    """One line of the table.

    Attributes:
        largest: difference of log probs, in nats; None where none were compared, as `mean`.
        tokens: how many were compared.
        note: what is wrong and what cures it, or why nothing can be compared.
    """

    check: str
    verdict: Verdict
    note: str = ""
    largest: float | None = None
    mean: float | None = None
    tokens: int = 0


async def check_policy(ask: Ask, source: LogProbSource, tolerance: float) -> list[Finding]:
    """Check a policy with all kinds of calls; those that it refuses cannot be compared.

    Args:
        tolerance: difference, in nats, that calculations in another precision or order may have.

    Raises:
        RolloutError: it answers none of them, or its set-up is at fault.
    """
    first, *others = ROWS
    replied_first = await _replies(first, ask)
    if isinstance(replied_first, RolloutError) and replied_first.curable:
        raise replied_first  # the others would fail too, one after the other
    found = [replied_first, *await asyncio.gather(*(_replies(row, ask) for row in others))]
    if isinstance(found[0], RolloutError) and all(isinstance(got, RolloutError) for got in found):
        raise found[0]
    findings = await asyncio.gather(*(_row(row, got, source, tolerance) for row, got in zip(ROWS, found, strict=True)))
    replied = [(row, got) for row, got in zip(ROWS, found, strict=True) if not isinstance(got, RolloutError)]
    replies = [reply for _, got in replied for reply in got]
    limits = [row.max_tokens for row, got in replied for _ in got]
    form = (await _prompts(replies, source), _ends(replies, source.eos, limits), _spans(replies), _turns(replies))
    return [*findings, *form]


async def _replies(row: PolicyRow, ask: Ask) -> list[CheckedReply] | RolloutError:
    try:
        return await roll_out(row, ask)
    except RolloutError as error:
        return error


async def _row(
    row: PolicyRow, replies: list[CheckedReply] | RolloutError, source: LogProbSource, tolerance: float
) -> Finding:
    """Compare the log probs of a row's calls with those of the settings that were asked for."""
    if isinstance(replies, RolloutError):
        return Finding(row.name, "not comparable", replies.message)
    calls = [call for reply in replies for call in reply.calls]
    asked = {**NEUTRAL, **row.sampling}
    for call in calls:
        if len(call.log_probs) != len(call.generated):
            text = f"a reply has {len(call.log_probs)} log probs for {len(call.generated)} tokens"
            return Finding(row.name, "differs", text)
        unlike = _unlike(call.sampling, asked)
        if unlike:
            return Finding(row.name, "differs", f"recorded as sampled with {unlike}, which was not asked for")
    compared: list[Compared] = []
    surprise = _Surprise()
    try:
        for call in calls:
            steps = await source.steps(call.prompt, call.generated)
            expected = []
            for number, step in enumerate(steps):
                of_step = log_probs(step, asked, call.prompt, call.generated[:number])
                expected.append(float(of_step[step.place(call.generated[number])]))
                if step.is_whole:
                    surprise.add(of_step, expected[-1])
            compared.append(Compared(call, steps, expected))
    except NotComparable as error:
        return Finding(row.name, "not comparable", str(error))
    differences = [difference for one in compared for difference in one.differences()]
    largest, mean = max(differences), sum(differences) / len(differences)
    verdict: Verdict = "ok" if largest <= tolerance else "differs"
    note = "" if verdict == "ok" else cause(compared, asked, source.defaults, tolerance)
    if verdict == "ok" and surprise.is_too_small():
        verdict = "differs"
        note = (
            "the tokens are likelier than these settings make them: the engine samples with settings of its own; "
            "start it with --generation-config vllm"
        )
    return Finding(row.name, verdict, note, largest, mean, len(differences))


def _unlike(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Return the recorded settings that were not asked for; empty if there are none."""
    if not recorded:
        return "nothing"
    stated = {**NEUTRAL, **recorded}
    return ", ".join(f"{name} {stated[name]:g}" for name in NEUTRAL if stated[name] != asked[name])


class _Surprise:
    """Compares the log probs of sampled tokens with the mean that sampling from their distributions has."""

    def __init__(self) -> None:
        self._above = 0.0
        self._variance = 0.0

    def add(self, of_step: Any, sampled: float) -> None:
        """Add a token; `of_step` are the log probs of all tokens at its place."""
        np = importlib.import_module("numpy")
        finite = of_step[np.isfinite(of_step)]
        chances = np.exp(finite)
        mean = float((chances * finite).sum())
        if math.isfinite(sampled):
            self._above += sampled - mean
            self._variance += float((chances * (finite - mean) ** 2).sum())

    def is_too_small(self) -> bool:
        # By six standard deviations, the sampled tokens are likelier than they should be.
        return self._above > 6.0 * math.sqrt(self._variance) and self._above > 1.0


# The form of sequences ------------------------------------------------------------------------------------------------


async def _prompts(replies: Sequence[CheckedReply], source: LogProbSource) -> Finding:
    name = "ids of prompts"
    first = {tuple(reply.calls[0].prompt): reply.calls[0] for reply in replies}
    try:
        for call in first.values():
            expected = await source.prompt_ids(call.chat)
            if call.prompt != expected:
                text = f"{len(call.prompt)} ids where the chat template makes {len(expected)} others of the messages"
                return Finding(name, "differs", f"{text}: the engine has another template or tokenizer")
    except NotComparable as error:
        return Finding(name, "not comparable", str(error))
    return Finding(name, "ok", tokens=sum(map(len, first)))


def _ends(replies: Sequence[CheckedReply], eos: frozenset[int], limits: Sequence[int]) -> Finding:
    name = "ends of replies"
    ended = [call for reply in replies for call in reply.calls if not call.is_cut]
    for reply, limit in zip(replies, limits, strict=True):
        if any(call.is_cut and len(call.generated) != limit for call in reply.calls):
            return Finding(name, "differs", "a reply that was cut does not have as many ids as it may have tokens")
    last = {call.generated[-1] for call in ended}
    wrong = last - eos if eos else last if len(last) > MOST_ENDS else set()
    if wrong:
        text = f"replies that ended have the last ids {', '.join(map(str, sorted(wrong)[:MOST_ENDS]))}"
        return Finding(name, "differs", f"{text}, which end none: the ids are of the text of the replies, or moved")
    return Finding(name, "ok", tokens=len(ended))


def _spans(replies: Sequence[CheckedReply]) -> Finding:
    name = "spans and masks"
    num_tokens = 0
    for record in _records(replies):
        covered = [place for span in record.spans for place in range(span.start, span.end)]
        sampled = record.is_sampled()
        outside = [one for one, is_sampled in zip(record.log_probs, sampled, strict=False) if one and not is_sampled]
        if covered != list(range(len(record.token_ids))) or len(record.log_probs) != len(sampled) or outside:
            return Finding(name, "differs", "spans and log probs of a sequence do not fit its tokens")
        num_tokens += len(covered)
    return Finding(name, "ok", tokens=num_tokens)


def _records(replies: Sequence[CheckedReply]) -> Iterator[Record]:
    for reply in replies:
        try:
            yield Record.of({"response": {"output": reply.items}, "reward": 0.0})
        except NotTrainable:
            continue  # the line of the turns says so


def _turns(replies: Sequence[CheckedReply]) -> Finding:
    """Say how much is dropped; what is not is right all the same."""
    sampled = dropped = 0
    for reply in replies:
        for before, after in zip(reply.calls, reply.calls[1:], strict=False):
            sequence = [*before.prompt, *before.generated]
            sampled += len(before.generated)
            dropped += 0 if after.prompt[: len(sequence)] == sequence else len(before.generated)
    note = ""
    if dropped:
        note = f"{dropped} of {sampled} sampled tokens are not in the prompt of the next call: train on all records()"
    return Finding("turns continue", "ok", note, tokens=sampled)
