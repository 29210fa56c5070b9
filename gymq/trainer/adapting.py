"""What the adapters to trainers share: indices of groups, and what becomes of what a trainer has no form for."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from gymq.data.records import Record
from gymq.protocol.subjects import MAX_INDEX
from gymq.responses.errors import warn_once
from gymq.trainer.groups import Group, TrainerError

log = logging.getLogger("gymq.trainer")


def place_index(*place: object) -> int:
    """Return the task index of a group by its place in a training, such as a step and a prompt: always the same."""
    digest = hashlib.blake2b("/".join(map(str, place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % MAX_INDEX


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
        TrainerError: the batch has no sample at all.
        NotTrainable: a sample has no tokens.
    """
    records = [sample.records() for sample in group.samples]
    if group.is_complete:
        return records
    samples = group.samples or [sample for other in groups for sample in other.samples]
    if not samples:
        raise TrainerError(group.why_incomplete())
    log.warning("%s; what is missing is masked", group.why_incomplete())
    mean = fmean(sample.reward for sample in samples)
    substitute = [replace(samples[0].record(), mask=True, reward=mean)]
    return records + [substitute] * (group.num_samples - len(records))
