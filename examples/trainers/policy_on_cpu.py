"""The tiny policy on a CPU, in place of a trainer's own workers, which need a GPU; tasks, rewards and arguments."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from transformers import AutoModelForCausalLM

from gymq.redaction import redact
from gymq.trainer import read_rows

EXAMPLES = Path(__file__).parents[1]
POLICY = EXAMPLES / "tiny_policy" / "checkpoint"
ROWS = EXAMPLES / "demo_vllm" / "rows.jsonl"
RESULT = "result.json"  # in the folder of a training that has ended
GROUP = 8  # samples of a task
MAX_GRADIENT_NORM = 1.0
LOAD_S = 120.0  # for an engine to load weights


class PolicyOnCPU:
    """The forward pass, steps of the optimizer, checkpoints, and weights for the engine."""

    def __init__(self, learning_rate: float) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32).eval()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=learning_rate, weight_decay=0.0)

    def logits(self, sequences: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return those of sequences that are padded on any side."""
        positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        return self._model(sequences, attention_mask=attention_mask, position_ids=positions).logits

    def step(self) -> float:
        """Update the weights by the gradient that was accumulated, and return its norm."""
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), MAX_GRADIENT_NORM)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return norm.item()

    def save(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}, file)

    def load(self, file: Path) -> None:
        state = torch.load(file, weights_only=True)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])

    def weights(self) -> bytes:
        """Return them as a file in the safetensors format."""
        return save({name: tensor.contiguous() for name, tensor in self._model.state_dict().items()})

    def load_into(self, engine: str, folder: Path) -> None:
        """Give an engine the weights through a folder that it sees, and empty its cache, which is of others."""
        self._model.save_pretrained(folder)
        path = {"weights_path": str(folder.absolute())}
        _post(f"{engine}/collective_rpc", {"method": "reload_weights", "kwargs": path})
        if not _post(f"{engine}/reset_prefix_cache?reset_running_requests=true")["success"]:
            raise RuntimeError(f"{engine} keeps its prefix cache, which is of the weights before")


def _post(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body or {}).encode(), headers)
    with urllib.request.urlopen(request, timeout=LOAD_S) as answer:
        answered: dict[str, Any] = json.load(answer)
    return answered


class Rewards:
    """The mean reward of each step, over restarts of the trainer too."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "rewards.jsonl"
        self._result = folder / RESULT

    def keep(self, step: int, rewards: Sequence[float]) -> None:
        """Note those of a step; a step that is repeated counts once."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([step, statistics.fmean(rewards)]) + "\n")

    def finish(self) -> None:
        by_step = dict(map(json.loads, self._file.read_text(encoding="utf-8").splitlines()))
        rewards = [by_step[step] for step in sorted(by_step)]
        self._result.write_text(json.dumps({"rewards": rewards}) + "\n", encoding="utf-8")
        print("reward of each step:", " ".join(f"{value:.3f}" for value in rewards))


def tasks() -> list[dict[str, Any]]:
    """Return the rows to train on; the order is always the same."""
    rows = read_rows(ROWS)
    random.Random(0).shuffle(rows)
    return rows


def write_data(file: Path) -> None:
    """Write the tasks to train on as a data set of prompts and rows; the order is always the same."""
    examples = [{"prompt": row["responses_create_params"]["input"], "row": json.dumps(row)} for row in tasks()]
    file.write_text("".join(json.dumps(example) + "\n" for example in examples), encoding="utf-8")


def arguments(description: str | None, name: str, *, needs_cluster: bool = True) -> argparse.Namespace:
    """Read those of a training. Its run is named after its folder, so rollouts and checkpoints are of one training."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    url = os.environ.get("GYMQ_NATS")
    required = needs_cluster and url is None
    parser.add_argument("--nats", default=url, required=required, help="URL of a gymq cluster; default: GYMQ_NATS")
    if needs_cluster:
        of_engine = (
            "of a `vllm serve` with VLLM_SERVER_DEV_MODE=1, behind vllm_model: the trainer gives it weights itself"
        )
        parser.add_argument("--engine", metavar="URL", help=of_engine)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--samples-of-step", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    started = f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    parser.add_argument("--output", type=Path, default=Path(started), help="the same folder again resumes the training")
    given = parser.parse_args()
    if (given.output / RESULT).exists():
        parser.error(f"{given.output} has a finished training")
    given.output.mkdir(parents=True, exist_ok=True)
    given.run = re.sub(r"[^A-Za-z0-9_-]", "-", given.output.absolute().name)[:64]
    return given


def until_interrupted(train: Callable[[argparse.Namespace], None], given: argparse.Namespace) -> None:
    """Train; Ctrl-C ends with the command that continues."""
    try:
        train(given)
    except KeyboardInterrupt:
        settings = {"--steps": given.steps, "--samples-of-step": given.samples_of_step, "--output": given.output}
        settings |= {"--learning-rate": given.learning_rate}
        if getattr(given, "engine", None):
            settings["--engine"] = given.engine
        if given.nats not in (None, os.environ.get("GYMQ_NATS")):
            settings["--nats"] = redact(given.nats)
        command = [sys.executable, sys.argv[0], *(str(part) for setting in settings.items() for part in setting)]
        raise SystemExit(f"stopped; continue with: {shlex.join(command)}") from None
