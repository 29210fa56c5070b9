"""The groups of a process of verl, sampled as its configuration says."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

import msgspec

from gymq.data.rows import PARAMS, SOURCE, TASK_INDEX
from gymq.errors import UsageError
from gymq.ext.shared.trainer_rows import row_of_text, with_sampling
from gymq.ext.trainers.adapting import Steps, place_index
from gymq.trainer.groups import Group, Row
from gymq.trainer.run import TrainingRun


class VerlRollouts:
    """The groups of a process, on one connection; the data set has the row as JSON text in the column `row`.

    Indices are derived from the step and the row, so a trainer that resumes at a step gets what is stored of it.
    """

    def __init__(self, config: Any) -> None:
        """Read the settings.

        Args:
            config: of verl's rollouts. `custom.gymq` has `run`, the name that rollouts are stored under, `nats`, the
                URL of the cluster (default: the variable GYMQ_NATS), `model`, the instance that is trained, and options
                of `TrainingRun.run_rollouts`.

        Raises:
            UsageError: a setting is missing.
        """
        self._config = config
        options = {"on_failed_group": "refill", **((config.custom or {}).get("gymq") or {})}
        nats, run = options.pop("nats", None) or os.environ.get("GYMQ_NATS"), options.pop("run", None)
        if not nats or not run:
            place = "actor_rollout_ref.rollout.custom.gymq"
            raise UsageError(f"{place}: needs `run`, and `nats` where GYMQ_NATS is not set")
        self._cluster = {"url": str(nats), "run": str(run), "model": options.pop("model", "policy_model")}
        self._options: Row = options
        self._steps = Steps(options)
        self._training: TrainingRun | None = None
        self._connecting = asyncio.Lock()
        self._step: Any = None
        self._seen: Counter[bytes] = Counter()  # rows of the step

    async def begin(self, step: int, *, validate: bool) -> None:
        """Announce the weights of a step, in one process; verl validates with those that a step ends with."""
        await self._steps.begin(await self._run(), step + validate)

    async def _run(self) -> TrainingRun:
        async with self._connecting:
            self._training = self._training or await TrainingRun.connect(**self._cluster)
            return self._training

    async def group(self, row: Any, step: Any, size: int, *, validate: bool, is_greedy: bool = False) -> Group:
        """Return the group of a row, sampled as verl's configuration says.

        Raises:
            UsageError, RowError, BusError: as `TrainingRun.run_rollouts` does.
        """
        whole = row_of_text(row, f"a prompt of step {step}")
        text = msgspec.json.encode({name: value for name, value in whole.items() if name != SOURCE})
        params = with_sampling(whole[PARAMS], self._sampling(validate, is_greedy))
        if self._step != (step, validate):
            self._step = step, validate
            self._seen.clear()
        index = place_index("validate" if validate else "train", step, self._seen[text], is_greedy, text)
        self._seen[text] += 1
        example = whole | {PARAMS: params, TASK_INDEX: index}
        batch = (await self._run()).run_rollouts([example], num_samples=size, urgent=validate, **self._options)
        (group,) = [group async for group in batch]
        return group

    def _sampling(self, validate: bool, is_greedy: bool) -> Row:
        config = self._config.val_kwargs if validate else self._config
        chosen = {"temperature": 0.0, "top_p": 1.0, "top_k": -1} if is_greedy else config
        sampling: Row = {name: chosen[name] for name in ("temperature", "top_p", "top_k")}
        sampling |= {"repetition_penalty": self._config.repetition_penalty, "max_tokens": self._config.response_length}
        return sampling | {"ignore_eos": self._config.ignore_eos or None}
