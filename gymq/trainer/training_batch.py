"""What one update of the policy is trained on: groups, their sequences of tokens, the same as tensors, and numbers."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gymq.data.records import Record
from gymq.trainer.groups import Group


@dataclass(frozen=True)
class TrainedRecord:
    """One sequence of tokens with what a loss needs.

    Attributes:
        advantage: how much better the rollout is than its group, in standard deviations of the group.
        behind: of each token that was sampled, how many updates of the policy came since; 0 for the others. A token
            without a version has that which began the rollout.
        is_trained: 1 for each token that was sampled and is not masked, else 0.
    """

    record: Record
    advantage: float
    behind: list[int]
    is_trained: list[int]

    @property
    def lags(self) -> list[int]:
        """How far behind each sampled token is."""
        return [lag for lag, is_sampled in zip(self.behind, self.record.is_sampled(), strict=True) if is_sampled]


@dataclass(frozen=True)
class TrainingBatch:
    """What one update of the policy is trained on.

    Attributes:
        groups: the oldest first.
        step: batches before this one.
        state: JSON value for the checkpoint of the update that this batch makes; `train_batches(state=...)` goes on
            after it.
        max_staleness: updates of the policy after which a token counts as stale.
        mask_stale: leave stale tokens out of the loss.
        updates_since: how many updates of the policy came after a version.
        collected: numbers of how it was collected, which become part of `metrics`.
    """

    groups: list[Group]
    step: int
    state: dict[str, Any]
    max_staleness: int
    mask_stale: bool
    updates_since: Callable[[str], int]
    collected: Mapping[str, float]

    @cached_property
    def records(self) -> list[TrainedRecord]:
        """The sequences of all samples, those of branches too.

        Raises:
            NotTrainable: a sample has no tokens.
        """
        return [
            self._trained(record, advantage, sample.policy_versions[0] if sample.policy_versions else "")
            for group in self.groups
            for sample, advantage in zip(group.samples, advantages(group.rewards), strict=True)
            for record in sample.records()
        ]

    def tensors(self, device: Any = "cpu") -> dict[str, Any]:
        """Return the records as tensors of torch, a row for each, padded with 0 on the right.

        Returns:
            `input_ids`, `attention_mask`, `sampled` (1.0 where the loss is taken), `log_probs` of the engine and
            `behind` have the shape [records, longest]; `advantages` has the shape [records].
        """
        torch = importlib.import_module("torch")
        longest = max((len(one.record.token_ids) for one in self.records), default=0)

        def padded(rows: list[Sequence[float]], dtype: Any) -> Any:
            return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=dtype, device=device)

        return {
            "input_ids": padded([one.record.token_ids for one in self.records], torch.long),
            "attention_mask": padded([[1] * len(one.record.token_ids) for one in self.records], torch.long),
            "sampled": padded([one.is_trained for one in self.records], torch.float32),
            "log_probs": padded([one.record.log_probs for one in self.records], torch.float32),
            "behind": padded([one.behind for one in self.records], torch.long),
            "advantages": torch.tensor([one.advantage for one in self.records], dtype=torch.float32, device=device),
        }

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Numbers for a log.

        Returns:
            `reward` (mean), `rollouts`, `tokens` (sampled), `lag_mean` and `lag_max` (updates that sampled tokens are
            behind), `stale` (sequences with a token further behind than `max_staleness`), `masked_token_share`,
            `truncated` (share of the sequences that the engine cut short), `wait_s` (seconds that the batch was waited
            for), of the time since the batch before `without_variance` and `failed_groups` (groups, those that others
            replaced too), `stale_groups` (discarded), `cut_groups` (stragglers) and `dropped_tokens` (sampled ones of
            groups that were replaced or discarded when they were complete), and, in the first batch after an
            evaluation, `evaluation_reward` and `evaluation_step`.
        """
        lags = [lag for one in self.records for lag in one.lags]
        num_trained = sum(sum(one.is_trained) for one in self.records)
        num_truncated = sum(one.record.finish is not None for one in self.records)
        rewards = [reward for group in self.groups for reward in group.rewards]
        return {
            "reward": statistics.fmean(rewards) if rewards else 0.0,
            "rollouts": float(len(rewards)),
            "tokens": float(len(lags)),
            "lag_mean": statistics.fmean(lags) if lags else 0.0,
            "lag_max": float(max(lags, default=0)),
            "stale": float(sum(max(one.behind) > self.max_staleness for one in self.records)),
            "masked_token_share": 1.0 - num_trained / len(lags) if lags else 0.0,
            "truncated": num_truncated / len(self.records) if self.records else 0.0,
            **self.collected,
        }

    def _trained(self, record: Record, advantage: float, begun_by: str) -> TrainedRecord:
        sampled = record.is_sampled()
        versions = record.policy_versions or [None] * len(sampled)
        behind = [self.updates_since(version or begun_by) * one for version, one in zip(versions, sampled, strict=True)]
        most = self.max_staleness if self.mask_stale else float("inf")
        is_trained = [int(one and not record.mask and lag <= most) for one, lag in zip(sampled, behind, strict=True)]
        return TrainedRecord(record, advantage, behind, is_trained)


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return how much better each sample is than its group, in standard deviations of the group."""
    if not rewards:
        return []
    mean, deviation = statistics.fmean(rewards), statistics.pstdev(rewards)
    # The small number keeps a group without variance at advantages of 0.
    return [(reward - mean) / (deviation + 1e-4) for reward in rewards]
