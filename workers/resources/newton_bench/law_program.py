"""Computes a submitted law at many points. It runs in a sandbox, beside `law.py` and `points.json`."""

import json
import math
import os
from typing import Any

if __name__ == "__main__":
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with open("law.py", encoding="utf-8") as file:
        source = file.read()
    with open("points.json") as file:
        points = json.load(file)
    names: dict[str, Any] = {"__name__": "law", "math": math}
    if "np." in source or "numpy" in source:
        import numpy

        names["np"] = names["numpy"] = numpy
    exec(compile(source, "law.py", "exec"), names)
    law = names["discovered_law"]
    values = [float(law(*point)) for point in points]
    with open(answers, "w") as file:
        json.dump(values, file)
