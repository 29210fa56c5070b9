"""What the first release stored is still read, and its configurations still load.

`first_release/stored.json` has the bodies of its stored messages, encoded by its own code, and a manifest; beside it
are two of its configurations.
"""

import base64
import json
from pathlib import Path

import pytest

from gymq.cluster.worker_process import build
from gymq.config import load
from gymq.data.run_files import RunFiles
from gymq.protocol import messages
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import Message

FOLDER = Path(__file__).parent / "first_release"
STORED = json.loads((FOLDER / "stored.json").read_text())
SAMPLED = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [4, 5], "generation_log_probs": [-0.25, -0.5]}
POLICY = {"policy_model": {"responses_api_models": {"simulated_model": {"entrypoint": "worker.py"}}}}


def read(name: str, kind: type[Message]):
    return Decoder(kind)(base64.b64decode(STORED["messages"][name]))


@pytest.mark.parametrize(
    ("name", "kind", "fields"),
    [
        ("submission", messages.Submission, {"run": "first-run", "num_repeats": 2}),
        ("task", messages.Task, {"task_index": 3, "timeout_s": 3600.0, "replaces": 7, "max_staleness": 2}),
        ("rollout", messages.VerifiedRollout, {"reward": 1.0, "verdict": {"extracted_answer": "4"}, "worker": "w1"}),
        ("failure", messages.Failure, {"failure_class": "model_failed", "retryable": True, "attempt": 2}),
        ("unresolved", messages.Unresolved, {"failure_class": "judge_failed", "message": "no judge"}),
        ("dead_letter", messages.DeadLetter, {"rollout": "first-run/3/1", "reason": "no answer", "body": b"{}"}),
        ("run", messages.Run, {"models": ["policy_model = vllm_model"], "num_rollouts": 4}),
        ("cancellation", messages.Cancellation, {"run": "first-run", "task_index": 3}),
        ("weights", messages.Weights, {"policy_version": "v2", "mode": "wait", "before": ["v1"]}),
        ("profile", messages.Profile, {"sequence": 9, "state": b"old"}),
    ],
)
def test_a_stored_message_is_read(name, kind, fields):
    message = read(name, kind)
    assert {field: getattr(message, field) for field in fields} == fields


def test_the_tokens_of_a_stored_rollout_are_read():
    (item,) = read("rollout", messages.VerifiedRollout).response["output"]
    assert {name: list(item[name]) for name in SAMPLED} == SAMPLED


def test_a_manifest_is_read(tmp_path):
    files = RunFiles(tmp_path / "rollouts.jsonl")
    files.manifest.write_text(json.dumps(STORED["manifest"]))
    manifest = files.read_manifest()
    assert manifest is not None
    assert (manifest.run, manifest.num_rollouts, manifest.settings["num_repeats"]) == ("first-run", 4, 4)


@pytest.mark.parametrize("name", ["demo", "equivalence_llm_judge"])
def test_a_configuration_loads_and_its_workers_accept_their_options(name):
    initial = POLICY if name != "demo" else None
    config = load([FOLDER / f"{name}.yaml"], initial=initial, env_yaml=None)
    assert config.instances
    for instance in config.instances:
        build(instance)
