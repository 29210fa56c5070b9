"""GRPO by TRL: on rollouts of a gymq cluster, or on TRL's own completions with a verifier of gymq as the reward.

With `--output FOLDER` the same command resumes a training that was stopped or killed, from the last checkpoint in it.

gymq up --config examples/demo_vllm/config.yaml          # in another terminal; TRL's own completions need no cluster
python examples/trainers/trl_grpo.py --nats nats://gymq:PASSWORD@HOST:PORT   # the password is in .gymq/jetstream
python examples/trainers/trl_grpo.py
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from policy_on_cpu import POLICY, RESULT, arguments, tasks, until_interrupted
from safetensors.torch import save
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from gymq.ext.trainers.trl import TRLRollouts, VerifierReward, environment_reward
from gymq.trainer.sync import SyncTrainingRun

MAX_STALENESS = 1  # updates
VERIFIERS = ["workers/resources/mcqa/config.yaml", "workers/models/simulated_model/config.yaml"]


class OnGymq:
    """A rollout function that first gives the engine the weights of this step."""

    def __init__(self, run: SyncTrainingRun, rows: list[dict[str, Any]]) -> None:
        self._run = run
        self._rollouts = TRLRollouts(run, rows, max_staleness=MAX_STALENESS)
        self._pushed = -1

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        step = trainer.state.global_step
        if step != self._pushed:
            if trainer.accelerator.is_main_process:
                weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
                self._run.update_weights(f"step-{step}", weights=save(weights))
            trainer.accelerator.wait_for_everyone()  # rollouts of all processes are begun by these weights
            self._pushed = step
        return self._rollouts(prompts, trainer)


def main(given: argparse.Namespace) -> None:
    rows = tasks()
    if given.nats is None:
        reward = VerifierReward(VERIFIERS, "mcqa")
        train(given, reward, [row for row in rows if row["agent_ref"]["name"].startswith("mcqa")])
        reward.close()
        return
    with SyncTrainingRun(given.nats, given.run) as run:
        train(given, environment_reward, rows, rollout_func=OnGymq(run, rows))


def train(given: argparse.Namespace, reward: Any, rows: list[dict[str, Any]], **more: Any) -> None:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # it says that rollout functions may change
    columns = [
        {
            "prompt": row["responses_create_params"]["input"],
            **{name: row.get(name) for name in ("options", "expected_answer")},
        }
        for row in rows
    ]
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(POLICY),
        args=GRPOConfig(
            output_dir=str(given.output),
            max_steps=given.steps,
            shuffle_dataset=False,  # TRL would shuffle again when it resumes
            per_device_train_batch_size=given.samples_of_step,
            num_generations=8,
            max_completion_length=64,
            learning_rate=given.learning_rate,
            lr_scheduler_type="constant",
            beta=0.0,
            logging_steps=1,
            save_strategy="steps",
            save_steps=1,
            save_total_limit=2,
            report_to=[],
            use_cpu=not torch.cuda.is_available(),
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_list(columns),
        reward_funcs=reward,
        **more,
    )
    trainer.train(resume_from_checkpoint=last_checkpoint(given.output))
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    (given.output / RESULT).write_text(json.dumps({"rewards": rewards}) + "\n", encoding="utf-8")
    print("reward of each step:", " ".join(f"{value:.3f}" for value in rewards))


def last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that is complete: its state is what is written last."""
    complete = [state.parent for state in folder.glob("checkpoint-*/trainer_state.json") if state.stat().st_size]
    return str(max(complete, key=lambda path: int(path.name.split("-")[1]))) if complete else None


if __name__ == "__main__":
    until_interrupted(main, arguments(__doc__, "trl", needs_cluster=False))
