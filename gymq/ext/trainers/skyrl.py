"""Rollouts for SkyRL: a generator whose trajectories are rollouts of a cluster.

The interface is that of SkyRL 0.4.0, https://github.com/NovaSky-AI/SkyRL, `skyrl/train/generators/base.py`. SkyRL
updates its engines itself; the model of the cluster forwards to them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gymq.data.records import Record
from gymq.data.rows import PARAMS, TASK_INDEX
from gymq.errors import UsageError
from gymq.ext.shared.trainer_rows import row_of_text, with_sampling
from gymq.ext.trainers.adapting import Steps, place_index, records_of, refuse_unknown, warn_if_dropped
from gymq.trainer.groups import Group, Row
from gymq.trainer.run import TrainingRun

# What does not change which tokens are sampled, and what changes nothing with these values.
_NOT_SAMPLING = ("logprobs", "skip_special_tokens", "include_stop_str_in_output")
_NEUTRAL = {"top_k": -1, "min_p": 0.0, "min_tokens": 1}


class GymqGenerator:
    """SkyRL's `GeneratorInterface` in front of a cluster.

    The data set has the row as JSON text in the column `row`, which SkyRL passes on in `env_extras`. Trajectories with
    one `instance_id` are the samples of one group. Its index is derived from the step, so a trainer that resumes at a
    step gets the rollouts that are stored of it.
    """

    def __init__(self, training: TrainingRun, *, step_wise: bool = False, **options: Any) -> None:
        """Prepare a generator on a run.

        Args:
            step_wise: return all sequences of a trajectory; as SkyRL's `generator.step_wise_trajectories`.
            options: of `TrainingRun.run_rollouts`, for all calls; `num_samples` and `urgent` are SkyRL's. SkyRL needs a
                reward for each trajectory: a group that failed is refilled unless `on_failed_group` is given, and what
                is missing then is masked.
        """
        self._training = training
        self._step_wise = step_wise
        self._options = {"on_failed_group": "refill"} | options
        self._steps = Steps(options)

    async def generate(self, input_batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return SkyRL's `GeneratorOutput` for its `GeneratorInput`, in the same order.

        A trajectory that the verifier masks is not trained on, but counts in the baseline of its group.

        Raises:
            UsageError: a row cannot be used, or all trajectories failed.
            RowError, BusError: as `TrainingRun.run_rollouts` does.
        """
        extras = input_batch.get("env_extras") or []
        ids = input_batch.get("trajectory_ids") or [None] * len(extras)
        if not extras or len(extras) != len(input_batch["prompts"]) or len(ids) != len(extras):
            raise UsageError("SkyRL's data set needs the column `row`, with the row of each prompt as JSON text")
        metadata = input_batch.get("batch_metadata")
        sampling = _known(input_batch.get("sampling_params") or {})
        asked = [
            (_instance(id_), _row(extra, sampling, position))
            for position, (id_, extra) in enumerate(zip(ids, extras, strict=True))
        ]
        examples, sizes = [], []
        for (instance, _), members in groupby(asked, key=lambda one: (one[0], one[1][PARAMS])):
            rows = [row for _, row in members]
            examples.append(rows[0] | {TASK_INDEX: _index(metadata, instance)})
            sizes.append(len(rows))
        if metadata is not None:
            await self._steps.begin(self._training, metadata.global_step + (_phase(metadata) != "train"))
        groups = await self._groups(examples, sizes, is_training=_phase(metadata) == "train")
        trajectories = [sequences for group in groups for sequences in records_of(group, groups)]
        if not self._step_wise:
            return _output([first for first, *_ in trajectories], input_batch.get("trajectory_ids"))
        # The last sequence is the one from which SkyRL computes advantages.
        records = [record for first, *branches in trajectories for record in (*branches, first)]
        repeated = [id_ for id_, sequences in zip(ids, trajectories, strict=True) for _ in sequences]
        is_last = [at == len(sequences) for sequences in trajectories for at, _ in enumerate(sequences, 1)]
        return _output(records, repeated) | {"is_last_step": is_last}

    async def _groups(self, examples: Sequence[Row], sizes: Sequence[int], *, is_training: bool) -> list[Group]:
        """Return the groups, in order."""
        groups: dict[int, Group] = {}
        for size in sorted(set(sizes)):
            chosen = [example for example, its_size in zip(examples, sizes, strict=True) if its_size == size]
            options: dict[str, Any] = {"num_samples": size, "urgent": not is_training, **self._options}
            async for group in self._training.run_rollouts(chosen, **options):
                groups[group.task_index] = group
                if not self._step_wise:
                    warn_if_dropped(group, "SkyRL without step_wise_trajectories")
        return [groups[example[TASK_INDEX]] for example in examples]


def _output(records: Sequence[Record], trajectory_ids: Any) -> dict[str, Any]:
    experts = [record.experts() for record in records]
    return {
        "prompt_token_ids": [record.prompt_ids for record in records],
        "response_ids": [record.behind_prompt(record.token_ids) for record in records],
        "rewards": [record.reward for record in records],
        "loss_masks": [
            [one * (not record.mask) for one in record.behind_prompt(record.is_sampled())] for record in records
        ],
        "stop_reasons": ["stop" if record.finish is None else "length" for record in records],
        "rollout_metrics": None,
        "rollout_logprobs": [record.behind_prompt(record.log_probs) for record in records],
        "trajectory_ids": trajectory_ids,
        "trajectory_generation_times": None,
        "trajectory_time_splits": None,
        "rollout_expert_indices": None if any(one is None for one in experts) else experts,
        "rollout_sample_support": None,
        "is_last_step": None,
        "env_metrics": None,
        "pixel_values": None,
        "image_grid_thw": None,
    }


def _row(extra: Any, sampling: Row, position: int) -> Row:
    """Return the row of a prompt, with SkyRL's sampling parameters."""
    row = row_of_text(extra.get("row") if isinstance(extra, Mapping) else None, f"env_extras[{position}]")
    return {**row, PARAMS: with_sampling(row[PARAMS], sampling)}


def _known(sampling: Mapping[str, Any]) -> Row:
    """Return the parameters that say how tokens are sampled, by vLLM's names."""
    chosen = {
        "max_tokens" if name == "max_generate_length" else name: value
        for name, value in sampling.items()
        if name not in _NOT_SAMPLING and value is not None
    }
    refuse_unknown(chosen, "sampling_params")
    return {name: value for name, value in chosen.items() if name not in _NEUTRAL or _NEUTRAL[name] != value}


def _instance(trajectory_id: Any) -> str:
    return secrets.token_hex(8) if trajectory_id is None else str(trajectory_id.instance_id)


def _phase(metadata: Any) -> str:
    return "train" if metadata is None else str(metadata.training_phase)


def _index(metadata: Any, instance: str) -> int:
    """Return the index of a group: the same for a step and an instance, and a separate one for each without a step."""
    if metadata is None:
        return place_index(secrets.token_hex(8))
    return place_index(metadata.training_phase, metadata.global_step, instance)
