"""Rollouts for SkyRL: a generator whose trajectories are rollouts of a cluster.

The interface is that of SkyRL 0.4.0, https://github.com/NovaSky-AI/SkyRL, `skyrl/train/generators/base.py`. SkyRL
updates its engines itself; the model of the cluster forwards to them.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gymq.data.records import Record
from gymq.data.rows import PARAMS, TASK_INDEX
from gymq.data.short_rows import whole_row
from gymq.trainer.groups import Group, Row, TrainerError
from gymq.trainer.run import TrainingRun
from gymq.trainer.sampling_params import with_sampling

TRIES = 3  # of a trajectory that fails for a reason that may pass: SkyRL has no form for one that is missing
_INDEX_BYTES = 6


class GymqGenerator:
    """SkyRL's `GeneratorInterface` in front of a cluster.

    The data set has the row as JSON text in the column `row`, which SkyRL passes on in `env_extras`. Trajectories with
    one `instance_id` are the samples of one group. Its index is derived from the step, so a trainer that resumes at a
    step gets the rollouts that are stored of it.
    """

    def __init__(self, training: TrainingRun, *, max_staleness: int | None = None, agent: str | None = None) -> None:
        """Prepare a generator on a run.

        Args:
            max_staleness: updates of the policy that a trajectory may be behind; None: any number.
            agent: instance for rows that name none.
        """
        self._training = training
        self._options: dict[str, Any] = {"max_staleness": max_staleness, "agent": agent}

    async def generate(self, input_batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return SkyRL's `GeneratorOutput` for its `GeneratorInput`, in the same order.

        A trajectory that the verifier masks is not trained on, but counts in the baseline of its group.

        Raises:
            TrainerError: a row cannot be used, or a trajectory has failed `TRIES` times.
            RowError, BusError: as `TrainingRun.run_rollouts` does.
        """
        extras = input_batch.get("env_extras") or []
        ids = input_batch.get("trajectory_ids") or [None] * len(extras)
        if not extras or len(extras) != len(input_batch["prompts"]) or len(ids) != len(extras):
            raise TrainerError("SkyRL's data set needs the column `row`, with the row of each prompt as JSON text")
        metadata = input_batch.get("batch_metadata")
        sampling = _known(input_batch.get("sampling_params") or {})
        trajectories = [
            (_instance(id_), _row(extra, sampling, position))
            for position, (id_, extra) in enumerate(zip(ids, extras, strict=True))
        ]
        examples, sizes = [], []
        for (instance, _), members in groupby(trajectories, key=lambda one: (one[0], one[1][PARAMS])):
            rows = [row for _, row in members]
            examples.append(rows[0] | {TASK_INDEX: _index(metadata, instance)})
            sizes.append(len(rows))
        samples = await self._samples(examples, sizes, is_training=_phase(metadata) == "train")
        return _output(samples, input_batch.get("trajectory_ids"))

    async def _samples(self, examples: Sequence[Row], sizes: Sequence[int], *, is_training: bool) -> list[Record]:
        """Return the records of all groups, in order; what fails is tried again."""
        groups: dict[int, Group] = {}
        for _ in range(TRIES):
            for size in sorted(set(sizes)):
                complete = {index for index, group in groups.items() if group.is_complete}
                missing = [
                    example
                    for example, wanted in zip(examples, sizes, strict=True)
                    if wanted == size and example[TASK_INDEX] not in complete
                ]
                options = self._options | {"num_samples": size, "urgent": not is_training}
                async for group in self._training.run_rollouts(missing, **options):
                    groups[group.task_index] = group
        for group in groups.values():
            if not group.is_complete:
                failure = group.failures[0]
                text = f"no trajectory in {TRIES} tries: {failure.failure_class}: {failure.message}"
                raise TrainerError(f"task {group.task_index} of run {self._training.run}: {text}")
        return [sample.record() for example in examples for sample in groups[example[TASK_INDEX]].samples]


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
    try:
        row = json.loads(whole_row(extra["row"].encode()))
        return {**row, PARAMS: with_sampling(dict(row[PARAMS]), sampling)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TrainerError(f"env_extras[{position}]: `row` is not a row as JSON text: {error}") from None


def _known(sampling: Mapping[str, Any]) -> Row:
    """Return the parameters that say how tokens are sampled; SkyRL adds settings of its own engines, at no effect."""
    names = ("temperature", "top_p", "max_tokens", "max_generate_length", "top_k", "min_p", "seed", "stop")
    chosen = {name: sampling[name] for name in names if sampling.get(name) is not None}
    if "max_generate_length" in chosen:
        chosen["max_tokens"] = chosen.pop("max_generate_length")
    neutral = {"top_k": -1, "min_p": 0.0}
    return {name: value for name, value in chosen.items() if neutral.get(name) != value}


def _instance(trajectory_id: Any) -> str:
    return secrets.token_hex(8) if trajectory_id is None else str(trajectory_id.instance_id)


def _phase(metadata: Any) -> str:
    return "train" if metadata is None else str(metadata.training_phase)


def _index(metadata: Any, instance: str) -> int:
    """Return the index of a group: the same for a step and an instance, and a separate one for each without a step."""
    place = secrets.token_hex(8) if metadata is None else f"{metadata.training_phase}/{metadata.global_step}"
    digest = hashlib.sha256(f"{place}/{instance}".encode()).digest()
    return int.from_bytes(digest[:_INDEX_BYTES], "big")
