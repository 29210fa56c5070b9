"""Group relative policy optimisation on recorded rollouts: https://arxiv.org/abs/2402.03300"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from processes import average_gradients
from transformers import PreTrainedModel

from gymq.data.records import Record

CLIP = 0.2
MAX_GRADIENT_NORM = 1.0
EPSILON = 1e-4  # added to the standard deviation of a group


@dataclass(frozen=True)
class Update:
    """What one update of the policy was like.

    Attributes:
        gap: largest difference between the log probs of the engine and those of this model, before the update.
        clipped: share of the sampled tokens whose ratio was clipped.
    """

    gap: float
    clipped: float


def advantages(rewards: Sequence[float]) -> list[float]:
    """How much better each sample is than its group, in standard deviations of the group."""
    mean, deviation = statistics.fmean(rewards), statistics.pstdev(rewards)
    return [(reward - mean) / (deviation + EPSILON) for reward in rewards]


def update(
    model: PreTrainedModel, optimizer: torch.optim.Optimizer, records: Sequence[Record], advantage: Sequence[float]
) -> Update:
    """One step of the optimizer over all records at once. Only tokens that were sampled are trained."""
    ids = _padded([record.token_ids for record in records], torch.long).to(model.device)
    sampled_by = _padded([record.log_probs for record in records], torch.float32)[:, 1:].to(model.device)
    trained = [[one * (not record.mask) for one in record.is_sampled()] for record in records]
    mask = _padded(trained, torch.float32)[:, 1:].to(model.device)
    num_trained = mask.sum().clamp(min=1.0)  # where all records are masked there is none
    log_probs = _log_probs(model, ids)
    ratio = torch.exp((log_probs - sampled_by) * mask)
    gain = torch.tensor(advantage, device=model.device)[:, None]
    clipped = ratio.clamp(1.0 - CLIP, 1.0 + CLIP)
    loss = -(torch.minimum(ratio * gain, clipped * gain) * mask).sum() / num_trained
    optimizer.zero_grad()
    loss.backward()
    average_gradients(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
    optimizer.step()
    with torch.no_grad():
        gap = ((log_probs - sampled_by).abs() * mask).max().item()
        share = ((ratio != clipped) * mask).sum() / num_trained
    return Update(gap, share.item())


def _log_probs(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """Of each token but the first, given those before it. Padding is on the right, so nothing looks at it."""
    logits = model(ids[:, :-1]).logits
    return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0]


def _padded(rows: Sequence[Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=dtype)
