"""The functions that TRL's GRPOTrainer asks for: https://huggingface.co/docs/trl/grpo_trainer.

A rollout function gives tokens in place of TRL's own generation, a reward function a number for each completion.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from gymq.config import load
from gymq.data.rows import PARAMS, TASK_INDEX
from gymq.data.short_rows import whole_row
from gymq.errors import UsageError
from gymq.ext.shared.local_verifiers import Verifiers, verify_again
from gymq.ext.shared.trainer_rows import with_sampling
from gymq.ext.trainers.adapting import place_index, refuse_unknown, warn_if_dropped
from gymq.ext.trainers.forms import to_trl
from gymq.failures import JudgeFailed, RolloutError
from gymq.processes.failing import OnFailure
from gymq.processes.loop_thread import LoopThread
from gymq.protocol.messages import FailureClass
from gymq.testing import reply
from gymq.trainer.examples import called
from gymq.trainer.groups import Group, Row
from gymq.trainer.sync import SyncTrainingRun

log = logging.getLogger("gymq.trainer")


class TRLRollouts:
    """A `rollout_func` for TRL's GRPOTrainer. Give the trainer `environment_reward` as its reward function.

    Equal prompts that follow each other are one group. Task indices are derived from the trainer's step and the prompt,
    so a trainer that restarts from a checkpoint gets the rollouts of the step that it had begun.
    """

    def __init__(self, run: SyncTrainingRun, rows: Sequence[Row], **options: Any) -> None:
        """Index the rows by their prompts.

        Args:
            run: the run that rolls them out.
            rows: the data set; a prompt stands for the row that has it.
            options: of `TrainingRun.run_rollouts`, for all calls; `num_samples` is TRL's.

        Raises:
            UsageError: two rows have the same prompt.
        """
        self._run = run
        self._options = options
        self._rows: dict[bytes, Row] = {}
        self._step, self._calls = -1, 0  # calls in this step
        for row in rows:
            whole = msgspec.json.decode(whole_row(msgspec.json.encode(row)))
            if (other := self._rows.setdefault(_key(whole[PARAMS]["input"]), whole)) is not whole:
                raise UsageError(f"{called('a row', other)} and {called('another', whole)}: two rows have the prompt")

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Return the fields that TRL needs, a value for each prompt. A failed sample is masked and has no reward.

        The settings of GRPOConfig win over the rows'; its `max_completion_length` limits each reply.

        Raises:
            UsageError: a prompt is unknown; a setting cannot be passed on; a sample failed, if that shall raise.
            BusError: the run lost its server.
        """
        rows, sizes = self._groups(prompts, trainer)
        groups: dict[int, Group] = {}
        for size in sorted(set(sizes)):  # all but one are alike, unless a group is spread over processes
            chosen = [row for row, its_size in zip(rows, sizes, strict=True) if its_size == size]
            for group in self._run.run_rollouts(chosen, num_samples=size, **self._options):
                groups[group.task_index] = group
                warn_if_dropped(group, "TRL")
        end = trainer.processing_class.eos_token_id
        samples = [sample for row in rows for sample in _samples(groups[row[TASK_INDEX]], end)]
        return {name: [sample[name] for sample in samples] for name in samples[0]}

    def _groups(self, prompts: Sequence[Any], trainer: Any) -> tuple[list[Row], list[int]]:
        """Return a numbered row for each group, and how many samples it needs."""
        step = trainer.state.global_step
        self._step, self._calls = step, self._calls + 1 if step == self._step else 0
        where = step, self._calls, trainer.accelerator.process_index
        seen: Counter[bytes] = Counter()
        rows, sizes, sampling = [], [], _sampling(trainer.args)
        for key, same in groupby(map(_key, prompts)):
            if key not in self._rows:
                raise UsageError(f"no row has the prompt {key.decode()}")
            row = self._rows[key]
            params = with_sampling(row[PARAMS], sampling, trainer.args.chat_template_kwargs)
            rows.append({**row, PARAMS: params, TASK_INDEX: place_index(*where, seen[key], key.decode())})
            seen[key] += 1
            sizes.append(len(list(same)))
        return rows, sizes


def _sampling(args: Any) -> Row:
    """Return how a GRPOConfig samples, by vLLM's names."""
    others = args.generation_kwargs or {}
    refuse_unknown(others, "GRPOConfig.generation_kwargs")
    chosen = {name: getattr(args, name) for name in ("temperature", "top_p", "min_p", "repetition_penalty")}
    return chosen | {"top_k": args.top_k or -1, "max_tokens": args.max_completion_length} | others


def environment_reward(completions: Sequence[Any], env_reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """Return the verifier's rewards: the reward function for gymq's rollouts. TRL leaves out samples that have None."""
    return list(env_reward)


def _samples(group: Group, end: int) -> Iterator[Row]:
    """Yield the fields of each sample; missing samples become one masked token."""
    if not group.is_complete:
        log.warning("%s; what is missing is masked", group.why_incomplete())
    for sample in group.samples:
        record = sample.record()
        yield to_trl(record) | ({"env_mask": [0] * len(record.behind_prompt(record.token_ids))} if record.mask else {})
    missing: Row = {"completion_ids": [end], "env_mask": [0], "logprobs": [0.0], "env_reward": None, "num_turns": 0}
    missing["prompt_ids"] = group.samples[0].record().prompt_ids if group.samples else [end]
    for _ in range(group.num_samples - len(group.samples)):
        yield missing


def _key(prompt: Any) -> bytes:
    """Return a key that distinguishes prompts. A text is a single user message; fields that are None do not count."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    said = [{name: value for name, value in message.items() if value is not None} for message in messages]
    return msgspec.json.encode(said, order="deterministic")


class VerifierReward:
    """A reward function for TRL that needs no cluster: a verifier on what TRL has generated itself.

    The columns of the data set are the fields of the row that the verifier reads.
    """

    def __init__(self, config: Sequence[str | Path], resources: str) -> None:
        """Build the verifier.

        Args:
            config: configuration files that have the verifier.
            resources: name of its instance.

        Raises:
            ConfigError, WorkerNotFound, OptionsError, UsageError: it cannot verify.
        """
        self.__name__ = resources  # TRL logs the reward under it
        self._verifiers = Verifiers(load([str(path) for path in config], []), models=_NoModels(), only=resources)
        self._resources = resources
        self._thread = LoopThread()
        with OnFailure(self.close):
            self._thread.run(self._verifiers.prepare(resources))

    def close(self) -> None:
        self._thread.run(self._verifiers.__aexit__())
        self._thread.stop()

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Return the rewards; None where the verifier reached no verdict, which is logged.

        Raises:
            UsageError: the columns are not what the verifier reads.
        """
        columns[PARAMS] = [{"input": prompt} for prompt in prompts]
        names = [name for name, values in columns.items() if isinstance(values, list)]
        rows = [{name: columns[name][at] for name in names} for at in range(len(prompts))]
        return self._thread.run(self._verify_all(rows, [_text(completion) for completion in completions]))

    async def _verify_all(self, rows: Sequence[Row], texts: Sequence[str]) -> list[float | None]:
        return await asyncio.gather(*(self._verify(row, text) for row, text in zip(rows, texts, strict=True)))

    async def _verify(self, row: Row, text: str) -> float | None:
        try:
            worker = self._verifiers.worker_for(self._resources)
            return (await verify_again(worker, "trainer", msgspec.json.encode(row), reply(text))).reward
        except RolloutError as error:
            if error.failure_class is FailureClass.INVALID_TASK:
                raise UsageError(f"{self._resources} cannot verify these columns: {error.message}") from None
            log.warning("%s: no verdict: %s", self._resources, error.message)
            return None


class _NoModels:
    """The models of a verifier here, which has none: asking a judge fails."""

    async def respond(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        raise JudgeFailed(f"no judge {model} can be asked outside a cluster")


def _text(completion: Any) -> str:
    """Return the policy's text: the completion itself, or the assistant's messages in it."""
    if isinstance(completion, str):
        return completion
    return "".join(message["content"] or "" for message in completion if message["role"] == "assistant")
