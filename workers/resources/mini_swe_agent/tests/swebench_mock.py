"""Stands in for `swebench.harness.run_evaluation`: the same options and files, tests that are words of the patch."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
for option in ("dataset_name", "predictions_path", "run_id"):
    parser.add_argument(f"--{option}", required=True)
parser.add_argument("--instance_ids", nargs="+")
parser.add_argument("--timeout", type=int)
parser.add_argument("--max_workers", type=int)
arguments = parser.parse_args()

dataset = {row["instance_id"]: row for row in json.loads(Path(arguments.dataset_name).read_text())}
(prediction,) = json.loads(Path(arguments.predictions_path).read_text())
name = prediction["instance_id"]
assert arguments.instance_ids == [name]
instance, patch = dataset[name], prediction["model_patch"]

folder = Path("logs/run_evaluation", arguments.run_id, prediction["model_name_or_path"], name)
folder.mkdir(parents=True)
log = folder / "run_instance.log"
if "no docker" in patch:
    sys.exit("docker.errors.DockerException: cannot connect to the Docker daemon")
if "hang" in patch:
    log.write_text(f"{os.getpid()}\n")
    time.sleep(600)
if "does not apply" in patch:
    log.write_text(">>>>> Patch Apply Failed:\nerror: patch failed: shapes.py:1\n")
elif "slow" in patch:
    log.write_text(f"Test timed out after {arguments.timeout} seconds.\n")
elif "crash" in patch:
    log.write_text("Error in evaluating model: the container is gone\n")
else:
    right = "right" in patch
    status = {
        "FAIL_TO_PASS": {
            "success": instance["FAIL_TO_PASS"] * (right and "skips" not in patch),
            "failure": instance["FAIL_TO_PASS"] * (not right),
        },
        "PASS_TO_PASS": {"success": instance["PASS_TO_PASS"], "failure": []},
    }
    entry = {"resolved": right, "infra_failure": "disk full" in patch, "tests_status": status}
    (folder / "report.json").write_text("{" if "garbled" in patch else json.dumps({name: entry}))
