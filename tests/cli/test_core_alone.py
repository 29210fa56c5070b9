"""The core works without the packages beside it."""

import json
import subprocess
import sys
from pathlib import Path

VERIFIER = """
import gymq

class Answered(gymq.Resources):
    async def verify(self, request):
        return gymq.Verdict(float(bool(request.reply_text)))
"""

COLLECT = """
import json, sys
import gymq
from gymq.cli import make_app

before = [name for name in sys.modules if name.startswith("gymq.ext.")]
words = "collect --rows rows.jsonl --resources answered.py --output out.jsonl"
status = make_app("collect")(words.split(), result_action="return_value")
after = [name for name in sys.modules if name.startswith("gymq.ext.")]
print(json.dumps([before, status, after]))
"""


def test_a_collection_loads_no_package_beside_the_core(tmp_path: Path) -> None:
    row = {"prompt": "The capital of Switzerland?"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "answered.py").write_text(VERIFIER)
    done = subprocess.run([sys.executable, "-c", COLLECT], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [[], 0, []]
    (result,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert result["reward"] == 1.0
