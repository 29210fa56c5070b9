"""A collector's memory does not grow with its data set."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NUM_ROWS = 100_000
MAX_GROWTH_MIB = 40

# In a process of its own: what it says is its growth in MiB, from after the imports to its peak.
PROGRAM = """
import resource, sys
from pathlib import Path
from gymq.data.jsonl import JsonlFile, atomic_write
from gymq.data.materialise import Materialisation, MaterialiseOptions
from gymq.data.resume import Resume
from gymq.data.run_files import RunFiles

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

before = peak_mib()
files = RunFiles(Path(sys.argv[2]))
with Materialisation(MaterialiseOptions(agent_name="agent")) as made, atomic_write(files.materialised) as rows:
    for row in made.rows(JsonlFile(sys.argv[1])):
        rows.write(row.json + b"\\n")
files.failures.touch()
with files.output.open("wb") as output:
    for number, line in enumerate(JsonlFile(files.materialised)):
        if number % 2:
            output.write(line)
with Resume(JsonlFile(files.materialised), JsonlFile(files.output), JsonlFile(files.failures)) as resume:
    count = 0
    for row in resume.to_run():
        count += resume.done.add(row.task_index, row.rollout_index)
    print(count, len(resume.done), peak_mib() - before)
"""


@pytest.mark.nightly
def test_a_hundred_thousand_rows_are_materialised_and_resumed_in_flat_memory(tmp_path: Path) -> None:
    with (tmp_path / "rows.jsonl").open("w") as file:
        for number in range(NUM_ROWS):
            row = {"responses_create_params": {"input": f"question {number}"}, "padding": "x" * 1000}
            file.write(json.dumps(row) + "\n")
    arguments = (str(tmp_path / "rows.jsonl"), str(tmp_path / "out.jsonl"))
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    count, done, growth_mib = ran.stdout.split()
    assert (int(count), int(done)) == (NUM_ROWS // 2, NUM_ROWS)
    assert float(growth_mib) < MAX_GROWTH_MIB  # the rows themselves are 100 MiB and more
