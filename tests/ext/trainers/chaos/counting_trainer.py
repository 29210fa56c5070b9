"""A trainer whose updates are counted only: the loop of an adapter, checkpoints, pushes, and the rewards that it got.

`python counting_trainer.py trl --nats URL --run NAME --rows FILE --folder FOLDER`. It trains in a process of its own,
whose number is in the file `training`. If that dies another one resumes from the checkpoint; it need not import
anything again, which takes verl longer than most things live here. The weights are the number of the step. No other
tests are imported, since this also runs in environments of trainers.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from gymq.ext.trainers.skyrl import GymqGenerator
from gymq.ext.trainers.trl import TRLRollouts
from gymq.trainer import SyncTrainingRun, TrainingRun

GROUPS = 6  # of a step
SAMPLES = 4  # of a group
AHEAD = 2  # steps, of our own loop
MAX_STALENESS = 1  # updates, of all others

Row = dict[str, Any]
Rewards = list[float]


class Given(NamedTuple):
    """A training."""

    nats: str
    run: str
    rows: list[Row]
    folder: Path

    def begin(self) -> None:
        """Note that this process trains."""
        (self.folder / "training").write_text(str(os.getpid()))

    def steps_left(self) -> Iterator[tuple[int, list[Row]]]:
        """The steps that the checkpoint has not, with their rows."""
        self.begin()
        for step in range(self.checkpoint.get("step", 0), len(self.rows) // GROUPS):
            yield step, self.rows[step * GROUPS : (step + 1) * GROUPS]

    @property
    def checkpoint(self) -> Row:
        file = self.folder / "checkpoint.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def update(self, step: int, rewards: Rewards, **state: Any) -> None:
        """Note the rewards that a step got, and save the checkpoint of its end."""
        with (self.folder / "rewards.jsonl").open("a") as file:
            file.write(json.dumps([step, rewards]) + "\n")
        unfinished = self.folder / "checkpoint.part"
        unfinished.write_text(json.dumps({"step": step + 1, **state}))
        unfinished.replace(self.folder / "checkpoint.json")


def own(given: Given) -> None:
    state = given.checkpoint.get("state")
    with SyncTrainingRun(given.nats, given.run) as run:
        given.begin()
        push(run, state["step"] if state else 0)
        options: Row = {"groups": GROUPS, "num_samples": SAMPLES, "ahead": AHEAD, "seed": None, "epochs": 1}
        for batch in run.train_batches(given.rows, state=state, **options):
            rewards = [reward for group in batch.groups for reward in group.rewards]
            assert rewards == expected([group.example for group in batch.groups])
            given.update(batch.step, rewards, state=batch.state)
            push(run, batch.step + 1)


def trl(given: Given) -> None:
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    args = SimpleNamespace(**sampling, generation_kwargs=None, chat_template_kwargs=None, max_completion_length=256)
    trainer = SimpleNamespace(
        args=args,
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(process_index=0),
        processing_class=SimpleNamespace(eos_token_id=0),
    )
    with SyncTrainingRun(given.nats, given.run) as run:
        rollouts = TRLRollouts(run, given.rows, max_staleness=MAX_STALENESS, on_failed_group="refill")
        for step, rows in given.steps_left():
            trainer.state.global_step = step
            push(run, step)
            output = rollouts([row["responses_create_params"]["input"] for row in repeated(rows)], trainer)
            given.update(step, output["env_reward"])


def skyrl(given: Given) -> None:
    async def train() -> None:
        run = await TrainingRun.connect(given.nats, given.run)
        generator = GymqGenerator(run, max_staleness=MAX_STALENESS)
        for step, rows in given.steps_left():
            await run.update_weights(f"step-{step}", weights=weights_of(step))
            asked = repeated(rows)
            output = await generator.generate(
                {
                    "prompts": [row["responses_create_params"]["input"] for row in asked],
                    "env_extras": [{"row": json.dumps(row)} for row in asked],
                    "sampling_params": {"temperature": 1.0},
                    "trajectory_ids": [SimpleNamespace(instance_id=f"{at // SAMPLES}") for at in range(len(asked))],
                    "batch_metadata": SimpleNamespace(global_step=step, training_phase="train"),
                }
            )
            given.update(step, output["rewards"])
        await run.close()

    asyncio.run(train())


def verl(given: Given) -> None:
    import numpy
    import verl.trainer.config
    from hydra import compose, initialize_config_dir
    from verl.protocol import DataProto

    from gymq.ext.trainers.verl import GymqLegacyManager

    rollout = "actor_rollout_ref.rollout"
    settings = {
        "actor_rollout_ref.model.path": "examples/tiny_policy/checkpoint",
        f"{rollout}.name": "vllm",
        f"{rollout}.prompt_length": 64,
        f"{rollout}.response_length": 192,
        f"{rollout}.n": SAMPLES,
        f"+{rollout}.custom.gymq.nats": f"'{given.nats}'",
        f"+{rollout}.custom.gymq.run": given.run,
        f"+{rollout}.custom.gymq.max_staleness": MAX_STALENESS,
    }
    with initialize_config_dir(str(Path(verl.trainer.config.__file__).parent), version_base=None):
        config = compose("ppo_trainer", [f"{name}={value}" for name, value in settings.items()])
    manager = GymqLegacyManager.create(config, llm_client=None)
    with SyncTrainingRun(given.nats, given.run) as run:
        for step, rows in given.steps_left():
            push(run, step)
            columns = {"uid": range(len(rows)), "row": list(map(json.dumps, rows)), "raw_prompt": [[]] * len(rows)}
            made = {name: numpy.empty(len(rows), dtype=object) for name in columns}
            for name, values in columns.items():
                made[name][:] = list(values)
            batch = DataProto(non_tensor_batch=made, meta_info={"global_steps": step, "validate": False})
            output = manager.generate_sequences(batch.repeat(SAMPLES, interleave=True))
            given.update(step, output.batch["rm_scores"].sum(-1).tolist())


def push(run: SyncTrainingRun, step: int) -> None:
    run.update_weights(f"step-{step}", weights=weights_of(step))


def weights_of(step: int) -> bytes:
    header = json.dumps({"step": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + step.to_bytes(8, "little")


def repeated(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows for _ in range(SAMPLES)]


def expected(rows: Iterable[Row]) -> Rewards:
    """The right rewards of a step."""
    return [row["grade"] for row in repeated(rows)]


LOOPS: dict[str, Callable[[Given], None]] = {"own": own, "trl": trl, "skyrl": skyrl, "verl": verl}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--nats", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.rows.read_text().splitlines()]
    if given.loop == "verl":
        importlib.import_module("gymq.ext.trainers.verl")
    with (given.folder / "starts").open("a") as starts:
        while os.waitstatus_to_exitcode(start(given.loop, Given(given.nats, given.run, rows, given.folder))):
            starts.write(".")
            starts.flush()


def start(loop: str, given: Given) -> int:
    """Train in a process of its own; return its status when it has ended."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        LOOPS[loop](given)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # some of what a loop has opened has no end


if __name__ == "__main__":
    main()
