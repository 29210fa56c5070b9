"""GRPO by SkyRL on a CPU: its trainer with gymq's generator, and workers of our own in place of FSDP's.

SkyRL's loop, data set, batches, advantages, loss and checkpoints are used as they are. Its workers import flash_attn,
so the forward and backward passes, the optimizer and the new weights for the engine are those of `policy_on_cpu.py`.
With `--output FOLDER` the same command resumes a training that was stopped or killed, from SkyRL's last checkpoint in
it.

gymq up --config examples/demo_vllm/config.yaml          # in another terminal
python examples/trainers/skyrl_grpo.py --nats nats://gymq:PASSWORD@HOST:PORT
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

import torch
from policy_on_cpu import GROUP, POLICY, PolicyOnCPU, Rewards, arguments, until_interrupted, write_data
from skyrl.backends.skyrl_train.distributed.dispatch import WorkerOutput
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry
from skyrl.backends.skyrl_train.utils.torch_utils import logprobs_from_logits
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.dataset import PromptDataset
from skyrl.train.generators.base import GeneratorInput, GeneratorOutput
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.tracking import Tracking
from skyrl.train.utils.trainer_utils import cleanup_old_checkpoints
from transformers import AutoTokenizer

from gymq.ext.trainers.skyrl import GymqGenerator
from gymq.trainer import TrainingRun

MAX_STALENESS = 1  # updates


class Trainer(RayPPOTrainer):
    """SkyRL's trainer, on one machine without Ray."""

    mean_rewards: Rewards

    async def generate(self, input_batch: GeneratorInput) -> GeneratorOutput:
        output = await super().generate(input_batch)
        self.mean_rewards.keep(self.global_step, output["rewards"])
        return output

    def _cleanup_old_checkpoints(self) -> None:
        cleanup_old_checkpoints(self.cfg.trainer.ckpt_path, self.cfg.trainer.max_ckpts_to_keep)


class Workers:
    """What SkyRL's trainer asks of its `WorkerDispatch`, for one policy in this process."""

    def __init__(
        self, trainer: RayPPOTrainer, policy: PolicyOnCPU, run: TrainingRun, given: argparse.Namespace
    ) -> None:
        self._trainer = trainer
        self._given = given
        self._run = run
        self._policy = policy
        self._algorithm = trainer.cfg.trainer.algorithm
        self._loss = PolicyLossRegistry.get(self._algorithm.policy_loss_type)

    def get_lcm_dp_size(self) -> int:
        return 1

    def stage_data(self, model: str, data: TrainingInputBatch, boundaries: list[tuple[int, int]]) -> list[Any]:
        return [data[start:end] for start, end in boundaries]

    def forward_from_staged(self, model: str, batch: TrainingInputBatch) -> WorkerOutput:
        with torch.no_grad():
            log_probs = self._log_probs(batch)
        return WorkerOutput(loss_fn_outputs=[{"logprobs": row} for row in log_probs.tolist()], metrics={})

    def forward_backward_from_staged(self, model: str, batch: TrainingInputBatch) -> WorkerOutput:
        loss, metrics = self._loss(
            self._log_probs(batch),
            batch["action_log_probs"],
            batch["advantages"],
            config=self._algorithm,
            loss_mask=batch["loss_mask"],
            rollout_logprobs=batch["rollout_logprobs"],
        )
        loss.backward()
        return WorkerOutput(loss_fn_outputs=[], metrics={"policy_loss": loss.item(), **metrics})

    def optim_step(self, model: str) -> float:
        return self._policy.step()

    def save_checkpoint(self, model: str, folder: str, tokenizer: Any) -> None:
        self._policy.save(Path(folder) / "policy.pt")

    def load_checkpoint(self, model: str, folder: str, **_: bool) -> None:
        self._policy.load(Path(folder) / "policy.pt")

    async def save_weights_for_sampler(self) -> None:
        if self._given.engine:  # the generator announces them
            await asyncio.to_thread(self._policy.load_into, self._given.engine, self._given.output / "engine")
            return
        await self._run.update_weights(f"step-{self._trainer.global_step}", weights=self._policy.weights())

    def get_timing_metrics(self) -> dict[str, float]:
        return {}

    def init_weight_sync_state(self, inference_engine_client: None) -> None:
        """Do nothing: new weights go over NATS."""

    def empty_cache(self, model: str | None = None) -> None:
        """Do nothing: the policy is on the CPU."""

    def finalize_pending_saves(self, model: str) -> None:
        """Do nothing: checkpoints are complete when they are saved."""

    def _log_probs(self, batch: TrainingInputBatch) -> torch.Tensor:
        """Return those of the responses."""
        sequences = batch["sequences"]
        logits = self._policy.logits(sequences, batch["attention_mask"])
        log_probs = logprobs_from_logits(logits[:, :-1], sequences[:, 1:])
        return log_probs[:, -batch.metadata["response_length"] :]


def configuration(given: argparse.Namespace) -> SkyRLTrainConfig:
    prompts = given.samples_of_step // GROUP
    settings = {
        "trainer.strategy": "fsdp",
        "trainer.train_batch_size": prompts,
        "trainer.policy_mini_batch_size": prompts,
        "trainer.epochs": given.steps,
        "trainer.max_training_steps": given.steps,
        "trainer.ckpt_path": str(given.output / "checkpoints"),
        "trainer.ckpt_interval": 1,
        "trainer.max_ckpts_to_keep": 2,
        "trainer.eval_interval": -1,
        "trainer.placement.colocate_all": False,
        "trainer.algorithm.advantage_estimator": "grpo",
        "trainer.algorithm.policy_loss_type": "regular",
        "trainer.algorithm.use_kl_loss": False,
        "generator.n_samples_per_prompt": GROUP,
        "generator.sampling_params.temperature": 1.0,
        "generator.sampling_params.max_generate_length": 64,
        "generator.inference_engine.enable_ray_prometheus_stats": False,
        "data.dataloader.num_workers": 0,
        "data.dataloader.persistent_workers": False,
    }
    return SkyRLTrainConfig.from_cli_overrides(settings)


async def train(given: argparse.Namespace) -> None:
    cfg, tokenizer = configuration(given), AutoTokenizer.from_pretrained(POLICY)
    data = given.output / "data.jsonl"
    write_data(data)
    data_set = PromptDataset(str(data), tokenizer, max_prompt_length=512, num_workers=1)
    run = await TrainingRun.connect(given.nats, given.run)
    generator = GymqGenerator(run, max_staleness=MAX_STALENESS)
    trainer = Trainer(cfg, Tracking("gymq", given.run), tokenizer, data_set, None, generator)
    trainer.mean_rewards = Rewards(given.output)
    trainer.dispatch = Workers(trainer, PolicyOnCPU(given.learning_rate), run, given)
    await trainer.train()
    await run.close()
    trainer.mean_rewards.finish()


if __name__ == "__main__":
    until_interrupted(lambda given: asyncio.run(train(given)), arguments(__doc__, "skyrl"))
