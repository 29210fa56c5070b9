"""Writes rows.jsonl, the data set of the demo. The same rows every time."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import counters
import maths
import office
import quiz


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "rows.jsonl")
    output = parser.parse_args().output
    sources = {"quiz": quiz.rows, "maths": maths.rows, "counters": counters.rows, "office": office.rows}
    # A seed for each source, so that a change in one leaves the rows of the others alone.
    made = (row for name, source in sources.items() for row in source(random.Random(name)))
    rows = list({json.dumps(row["responses_create_params"]["input"]): row for row in made}.values())  # none twice
    random.Random("order").shuffle(rows)
    with output.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    print(f"{len(rows)} rows in {output}")


if __name__ == "__main__":
    main()
