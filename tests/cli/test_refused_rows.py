"""`gymq collect` with rows that cannot be used: each costs itself, and the exit status says so."""

import json

from .conftest import row


def test_good_rows_are_collected_beside_a_bad_one(gymq, cluster, tmp_path):
    rows, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text(json.dumps(row("first letter", "A")) + '\n{"broken\n')
    command = ("collect", "-c", cluster.config, "-i", rows, "-o", output)
    for _ in range(2):
        called = gymq(*command, "--json")
        assert called.status == 3
        assert f"1 row of {rows} cannot be used; {tmp_path}/out_failures.jsonl names" in called.err
        summary = called.json
        assert (summary["done"], summary["failed"], summary["refused"]) == (1, 0, 1)
    assert len((tmp_path / "out_failures.jsonl").read_text().splitlines()) == 1
    strict = gymq(*command, "--strict-rows", "--overwrite")
    assert strict.status == 2
    assert f"{rows}:2: " in strict.err
    assert len(output.read_text().splitlines()) == 1
