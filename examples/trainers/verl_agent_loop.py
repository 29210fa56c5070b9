"""An agent loop for verl: each sample is a rollout of a gymq cluster.

Name this class in the file that `actor_rollout_ref.rollout.agent.agent_loop_config_path` points to:

    - name: gymq
      _target_: examples.trainers.verl_agent_loop.GymqAgentLoop
      nats: nats://...
      run: my-training
      max_staleness: 1

and put `agent_name: gymq` and `row`, the row as JSON text, into the data set. The workers' model is one in front of
verl's engines, such as vllm_model; verl updates their weights itself.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any, ClassVar

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from gymq.data.records import to_verl
from gymq.errors import GymqError
from gymq.trainer import TrainingRun

TRIES = 3  # of a sample that fails for a reason that may pass; one sample that is missing ends verl's step


class GymqAgentLoop(AgentLoopBase):
    """Hands a row to the cluster and gives verl its tokens."""

    _runs: ClassVar[dict[tuple[str, str], asyncio.Task[TrainingRun]]] = {}  # one connection for all loops of a process

    def __init__(self, *args: Any, nats: str, run: str, max_staleness: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._nats = nats
        self._run_name = run
        self._max_staleness = max_staleness  # updates of the policy that a sample may be behind

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        row = json.loads(kwargs["row"])
        wanted = {name: sampling_params[name] for name in ("temperature", "top_p") if name in sampling_params}
        row["responses_create_params"] = {**row["responses_create_params"], **wanted}
        row["_ng_task_index"] = secrets.randbits(52)  # verl does not tell the samples of a prompt apart
        training = await self._training_run()
        for _ in range(TRIES):
            batch = training.run_rollouts([row], max_staleness=self._max_staleness)
            (group,) = [group async for group in batch]
            if group.samples:
                return self._output(to_verl(group.samples[0].record()))
        raise RuntimeError(f"no rollout in {TRIES} tries: {group.failures[0].message}")

    def _output(self, converted: dict[str, Any]) -> AgentLoopOutput:
        length = self.rollout_config.response_length
        if converted["extra_fields"]["mask_sample"]:
            converted["response_mask"] = [0] * len(converted["response_mask"])
        for name in ("response_ids", "response_mask", "response_logprobs"):
            converted[name] = converted[name][:length]
        if converted["routed_experts"] is not None:
            converted["routed_experts"] = converted["routed_experts"][: len(converted["prompt_ids"]) + length]
        return AgentLoopOutput(**converted)

    async def _training_run(self) -> TrainingRun:
        key = (self._nats, self._run_name)
        if key not in self._runs:
            self._runs[key] = asyncio.create_task(TrainingRun.connect(*key))
        connecting = self._runs[key]
        try:
            return await asyncio.shield(connecting)  # other samples wait for it too
        except GymqError:
            if self._runs.get(key) is connecting:
                del self._runs[key]  # the next sample connects again
            raise
