"""Rollouts for verl: agent loop managers whose samples are rollouts of a cluster.

The interface is that of verl 0.9.1, https://github.com/verl-project/verl: its trainers take the class that
`actor_rollout_ref.rollout.agent.agent_loop_manager_class` names, and `actor_rollout_ref.rollout.custom` is free for its
settings. verl updates its engines itself; the model of the cluster forwards to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import Any

import ray
import transfer_queue
from verl.experimental.agent_loop.agent_loop import AgentLoopManager, AgentLoopOutput, AgentLoopWorker
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from gymq.data.records import Record
from gymq.ext.trainers.adapting import records_of, warn_if_dropped
from gymq.ext.trainers.forms import to_verl
from gymq.ext.trainers.verl_rollouts import VerlRollouts
from gymq.processes.failing import FailureLogged
from gymq.processes.loop_thread import LoopThread
from gymq.trainer.groups import Row

log = logging.getLogger("gymq.trainer")


def _output(record: Record, length: int, step: int) -> Any:
    """Return a sequence as verl's output, with at most so many tokens behind the prompt."""
    fields = to_verl(record)
    if record.mask:
        fields["response_mask"] = [0] * len(fields["response_mask"])
    fields |= {name: fields[name][:length] for name in ("response_ids", "response_mask", "response_logprobs")}
    if fields["routed_experts"] is not None:
        fields["routed_experts"] = fields["routed_experts"][: len(fields["prompt_ids"]) + length]
    # verl counts how many updates a sequence is behind. A step begins with the weights of the one before.
    extra = fields["extra_fields"] | {"min_global_steps": step - 1, "max_global_steps": step - 1}
    return AgentLoopOutput(**fields | {"extra_fields": extra | {"reward_extra_info": {}}})


class _Worker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):
    """verl's worker, which puts the sequences of groups into the transfer queue."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rollouts = VerlRollouts(self.rollout_config)

    async def _run_prompt(self, prompt: Row, sampling_params: Row, trajectory: Row, trace: bool = False) -> None:
        """Roll out a prompt; if a sample is missing, the group has failed, and verl trains on those that are there."""
        validate, step, uid = trajectory["validate"], trajectory["step"], prompt["uid"]
        partition = "val" if validate else "train"
        await transfer_queue.async_kv_put(key=uid, partition_id=partition, tag={"status": "running"})
        config = self.rollout_config
        size = prompt.pop("__rollout_n__", config.val_kwargs.n if validate else config.n)
        is_greedy = not validate and not prompt.pop("__do_sample__", True)
        prompt.pop("agent_name", None)
        status = "failure"
        try:
            with FailureLogged(log, "a prompt of step %s was not rolled out", step):  # as verl does
                group = await self._rollouts.group(
                    prompt.get("row"), step, size, validate=validate, is_greedy=is_greedy
                )
                for session, sample in enumerate(group.samples):
                    first, *branches = [_output(record, config.response_length, step) for record in sample.records()]
                    # The last sequence is the one by which verl counts the sample.
                    await self._agent_loop_postprocess([*branches, first], validate, session_id=session, **prompt)
                if group.is_complete:
                    status = "finished"
                else:
                    log.warning("%s; verl trains without what is missing", group.why_incomplete())
        finally:
            await transfer_queue.async_kv_put(key=uid, partition_id=partition, tag={"status": status})


class GymqManager(AgentLoopManagerTQ):
    """The manager for verl's trainer; all sequences of a rollout are trained on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(_Worker)
        self._thread, self._rollouts = LoopThread(), VerlRollouts(self.rollout_config)

    def generate_sequences(self, prompts: Any) -> None:
        """Have the workers roll out prompts; returns at once."""
        validate = bool(prompts["validate"]) if "validate" in prompts else False
        self._thread.run(self._rollouts.begin(prompts["global_steps"], validate=validate))
        super().generate_sequences(prompts)


class _PaddingWorker(AgentLoopWorker):
    """verl's worker that pads, of whole batches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rollouts = VerlRollouts(self.rollout_config)

    async def generate_sequences(self, batch: Any) -> Any:
        columns, validate = batch.non_tensor_batch, bool(batch.meta_info.get("validate"))
        is_sampled = columns.get("__do_sample__", [True] * len(batch))
        positions = defaultdict(list)
        for position, key in enumerate(zip(columns["uid"], is_sampled, strict=True)):
            positions[key].append(position)
        step, length = batch.meta_info["global_steps"], self.rollout_config.response_length
        await self._rollouts.begin(step, validate=validate)
        rows = columns.get("row", [None] * len(batch))
        groups = await asyncio.gather(
            *(
                self._rollouts.group(rows[at[0]], step, len(at), validate=validate, is_greedy=not one_is_sampled)
                for (_, one_is_sampled), at in positions.items()
            )
        )
        padded: list[Any] = [None] * len(batch)
        for at, group in zip(positions.values(), groups, strict=True):
            warn_if_dropped(group, "verl's legacy trainer")
            for position, (record, *_) in zip(at, records_of(group, groups), strict=True):
                output, prompt = _output(record, length, step), columns["raw_prompt"][position]
                padded[position] = await self._agent_loop_postprocess(output, validate, raw_prompt=prompt)
        return self._postprocess(padded, input_non_tensor_batch=columns, validate=validate)


class GymqLegacyManager(AgentLoopManager):
    """The manager for verl's legacy trainer (`trainer.use_v1=False`), which trains on one sequence a sample."""

    async def _init_agent_loop_workers(self) -> None:
        self._thread = LoopThread()
        self._worker = _PaddingWorker(self.config, self.llm_client, None, self.reward_loop_worker_handles)

    def generate_sequences(self, prompts: Any) -> Any:
        """Return verl's batch for one of prompts, a sample for each.

        Raises:
            UsageError, RowError, BusError: as `TrainingRun.run_rollouts` does, or no sample of the batch finished.
        """
        output = self._thread.run(self._worker.generate_sequences(prompts))
        output.meta_info["timing"] = self._performance_metrics([output.meta_info.pop("metrics")], output)
        return output
