"""Run a script that makes the rows of a data set, where gymq need not be installed: `SCRIPT OUTPUT`.

The script defines `prepare()`, which writes a JSONL file and returns its path, as those of NeMo Gym's benchmarks do.
"""

import os
import runpy
import shutil
import sys
from pathlib import Path


def main() -> None:
    script, output = Path(sys.argv[1]), sys.argv[2]
    rows = os.dup(1)
    os.dup2(2, 1)  # what the script prints is for people
    for folder in reversed(script.parents[:3]):  # its own, and those from which a checkout imports its packages
        sys.path.insert(0, str(folder))
    made = runpy.run_path(str(script))["prepare"]()
    with open(made, "rb") as source, open(rows if output == "-" else output, "wb") as target:
        shutil.copyfileobj(source, target)


if __name__ == "__main__":
    main()
