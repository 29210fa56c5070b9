"""Computes a submitted law at many points. It runs in a sandbox, beside `law.py` and `points.json`.

The answer is a list with a number for each point, or null where the law raised; the first exception is on stderr.
"""

import json
import math
import os
import traceback
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
    values: list[float | None] = []
    for point in points:
        try:
            values.append(float(law(*point)))
        except Exception:
            if None not in values:
                traceback.print_exc()
            values.append(None)
    with open(answers, "w") as file:
        json.dump(values, file)
