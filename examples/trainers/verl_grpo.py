"""GRPO by verl on a CPU: its trainer with gymq's agent loop manager, and a worker of our own in place of its actor's.

verl's loop (`RayPPOTrainer.fit`), data set, padded batches, advantages, loss and checkpoints are used as they are. Its
other workers need an accelerator, so the forward and backward passes, the optimizer and the new weights for the engine
are those of `policy_on_cpu.py`. With `--output FOLDER` the same command resumes a training that was stopped or killed,
from verl's last checkpoint in it.

gymq up --config examples/demo_vllm/config.yaml          # in another terminal
python examples/trainers/verl_grpo.py --nats nats://gymq:PASSWORD@HOST:PORT
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import verl.trainer.config
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from policy_on_cpu import GROUP, POLICY, PolicyOnCPU, Rewards, arguments, until_interrupted, write_data
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl.protocol import DataProto
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.trainer.ppo.utils import Role
from verl.utils import tensordict_utils
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import build_attention_mask_from_nested

from gymq.ext.trainers.verl import GymqLegacyManager
from gymq.trainer.sync import SyncTrainingRun

MAX_STALENESS = 1  # updates


class Actor:
    """What verl's trainer asks of the group of its actor's workers, for one policy in this process."""

    def __init__(self, policy: PolicyOnCPU, config: DictConfig) -> None:
        self._policy = policy
        self._config = omega_conf_to_dataclass(config.actor_rollout_ref.actor)

    def compute_log_prob(self, data: TensorDict) -> TensorDict:
        with torch.no_grad():
            output = self._forward(data)
        return tensordict_utils.get_tensordict(output, {"metrics": {"mfu": 0.0}})

    def update_actor(self, data: TensorDict) -> TensorDict:
        tensordict_utils.assign_non_tensor(data, dp_size=1, batch_num_tokens=data["loss_mask"].sum().item())
        loss, metrics = ppo_loss(self._config, self._forward(data), data)
        loss.backward()
        metrics |= {"grad_norm": [self._policy.step()], "mfu": [0.0]}
        return tensordict_utils.get_tensordict({}, {"metrics": metrics})

    def save_checkpoint(self, folder: str, *_: Any, **__: Any) -> None:
        self._policy.save(Path(folder) / "policy.pt")

    def load_checkpoint(self, folder: str, **_: Any) -> None:
        self._policy.load(Path(folder) / "policy.pt")

    def _forward(self, data: TensorDict) -> dict[str, torch.Tensor]:
        """Return log probs and entropies, in verl's form without padding."""
        sequences = data["input_ids"]
        mask = build_attention_mask_from_nested(sequences)
        ids = torch.zeros(mask.shape, dtype=torch.long).masked_scatter(mask.bool(), sequences.values())
        logits = self._policy.logits(ids, mask)
        values = {
            "log_probs": logprobs_from_logits(logits, ids.roll(-1, dims=1)),
            "entropy": entropy_from_logits(logits),
        }
        return {
            name: torch.nested.nested_tensor_from_jagged(value[mask.bool()], offsets=sequences.offsets())
            for name, value in values.items()
        }


class Rollouts(GymqLegacyManager):
    """Rollouts of the cluster, whose mean reward is kept."""

    rewards: Rewards

    def generate_sequences(self, prompts: DataProto) -> DataProto:
        output = super().generate_sequences(prompts)
        self.rewards.keep(prompts.meta_info["global_steps"], output.batch["rm_scores"].sum(-1).tolist())
        return output


class Engines:
    """What verl's trainer asks of its `CheckpointEngineManager`: new weights go over NATS, or to an engine of ours."""

    def __init__(self, run: SyncTrainingRun, policy: PolicyOnCPU, given: argparse.Namespace) -> None:
        self._run = run
        self._policy = policy
        self._given = given

    def update_weights(self, step: int) -> None:
        if self._given.engine:  # the manager of rollouts announces them
            self._policy.load_into(self._given.engine, self._given.output / "engine")
            return
        self._run.update_weights(f"step-{step}", weights=self._policy.weights())

    def sleep_replicas(self) -> None:
        """Do nothing: the engine is another process."""


class NoGPUs:
    """What verl's trainer asks of its `ResourcePoolManager`."""

    def get_n_gpus(self) -> int:
        return 1  # it divides by them


def configuration(given: argparse.Namespace) -> DictConfig:
    data = given.output / "data.jsonl"
    write_data(data)
    prompts = given.samples_of_step // GROUP
    settings = {
        "algorithm.adv_estimator": "grpo",
        "data.train_files": data,
        "data.val_files": data,
        "data.train_batch_size": prompts,
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        "data.max_prompt_length": 256,
        "data.max_response_length": 256,
        "actor_rollout_ref.model.path": POLICY,
        "actor_rollout_ref.actor.ppo_mini_batch_size": prompts,
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.n": GROUP,
        "actor_rollout_ref.rollout.calculate_log_probs": True,
        "+actor_rollout_ref.rollout.custom.gymq.nats": f"'{given.nats}'",
        "+actor_rollout_ref.rollout.custom.gymq.run": given.run,
        "+actor_rollout_ref.rollout.custom.gymq.max_staleness": MAX_STALENESS,
        "trainer.logger": "[console]",
        "trainer.use_v1": False,
        "trainer.device": "cpu",
        "trainer.balance_batch": False,
        "trainer.val_before_train": False,
        "trainer.save_freq": 1,
        "trainer.total_epochs": given.steps,
        "trainer.total_training_steps": given.steps,
        "trainer.default_local_dir": given.output / "checkpoints",
    }
    folder = Path(verl.trainer.config.__file__).parent
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo_trainer", [f"{name}={value}" for name, value in settings.items()])


def train(given: argparse.Namespace) -> None:
    config, policy, rewards = configuration(given), PolicyOnCPU(given.learning_rate), Rewards(given.output)
    trainer = RayPPOTrainer(config, AutoTokenizer.from_pretrained(POLICY), {Role.ActorRollout: Actor}, NoGPUs())
    with SyncTrainingRun(given.nats, given.run) as run:
        trainer.actor_rollout_wg = Actor(policy, config)
        trainer.async_rollout_manager = Rollouts.create(config, llm_client=None)
        trainer.async_rollout_manager.rewards = rewards
        trainer.checkpoint_manager = Engines(run, policy, given)
        trainer.fit()
    rewards.finish()


if __name__ == "__main__":
    until_interrupted(train, arguments(__doc__, "verl"))
