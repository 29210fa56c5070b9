"""What the adapters to trainers share: indices of groups, versions, and what becomes of what a trainer cannot take."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from gymq.data.records import Record
from gymq.errors import UsageError
from gymq.protocol.sampling import NEUTRAL
from gymq.protocol.subjects import MAX_INDEX
from gymq.responses.errors import warn_once
from gymq.trainer.groups import Group
from gymq.trainer.run import TrainingRun

log = logging.getLogger("gymq.trainer")

# What vLLM's server takes in a request, and what decides which tokens are sampled.
_OF_REQUESTS = {*NEUTRAL, "max_tokens", "min_tokens", "seed", "stop", "stop_token_ids", "ignore_eos"}
_OF_REQUESTS |= {"logit_bias", "bad_words", "allowed_token_ids"}


def place_index(*place: object) -> int:
    """Return the task index of a group by its place in a training, such as a step and a prompt: always the same."""
    digest = hashlib.blake2b("/".join(map(str, place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % MAX_INDEX


class Steps:
    """Announces the weights of each step of a trainer that gives its engines their weights before a step begins."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Prepare to announce.

        Args:
            options: of `TrainingRun.run_rollouts`; without a limit on staleness nothing is announced.
        """
        self._is_asked = options.get("max_staleness") is not None
        self._begun: int | None = None
        self._announced: str | None = None
        self._beginning = asyncio.Lock()

    async def begin(self, training: TrainingRun, step: int) -> None:
        """Announce the weights that a step begins with, unless the program announces or pushes weights itself.

        Raises:
            UsageError: no worker of the model answers with them.
            BusError: the server does not answer.
        """
        if not self._is_asked:
            return
        async with self._beginning:
            if step == self._begun:
                return
            if training.policy_version == self._announced and await training.needs_announcing():
                self._announced = f"step-{step - 1}"
                await training.announce(self._announced)
                self._begun = step
            else:
                self._is_asked = False


def refuse_unknown(sampling: Iterable[str], place: str) -> None:
    """Refuse parameters that an engine behind the cluster would not sample with.

    Args:
        place: where the trainer has them, for the message.

    Raises:
        UsageError: one of them is not among vLLM's; names it.
    """
    if unknown := sorted(set(sampling) - _OF_REQUESTS):
        raise UsageError(f"{place}: {', '.join(unknown)} cannot be passed on to the engine; leave it out")


def warn_if_dropped(group: Group, trainer: str) -> None:
    """Warn, once a process, that a trainer of one sequence a sample does not see all tokens that were sampled."""
    if group.dropped_token_share:
        warn_once(
            f"{trainer} trains on one sequence a sample, and the chat template or the agent makes several: "
            "Group.dropped_token_share of the sampled tokens is not trained on"
        )


def records_of(group: Group, groups: Sequence[Group]) -> list[list[Record]]:
    """Return the sequences of each sample that was asked for, for trainers that need a reward for each.

    What stands in for a missing sample is a copy of another one, masked, with the mean reward of its group, or of all
    groups: no token of it is trained on, and the baseline of the group and the mean of the batch stay the same.

    Args:
        groups: of the batch.

    Raises:
        UsageError: the batch has no sample at all.
        NotTrainable: a sample has no tokens.
    """
    records = [sample.records() for sample in group.samples]
    if group.is_complete:
        return records
    samples = group.samples or [sample for other in groups for sample in other.samples]
    if not samples:
        raise UsageError(group.why_incomplete())
    log.warning("%s; what is missing is masked", group.why_incomplete())
    mean = fmean(sample.reward for sample in samples)
    substitute = [replace(samples[0].record(), mask=True, reward=mean)]
    return records + [substitute] * (group.num_samples - len(records))
