"""`gymq collect` with rows that cannot be used: each costs itself, and the exit status says so."""

import json
import logging

from .conftest import row


def test_good_rows_are_collected_beside_a_bad_one(gymq, cluster, tmp_path):
    rows, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text(json.dumps(row("first letter", "A")) + '\n{"broken\n')
    command = ("collect", "-c", cluster.config, "--rows", rows, "-o", output)
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


def test_a_field_of_a_request_that_is_not_known_costs_a_warning_and_no_row(
    gymq, cluster, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr("gymq.responses.errors._reported", set())
    rows = tmp_path / "rows.jsonl"
    line = row("first letter", "A")
    line["responses_create_params"] |= {"max_tokens": 5, "background": True, "prompt_cache_key": "k"}
    rows.write_text(json.dumps(line) + "\n" + json.dumps(line | {"more": 1}) + "\n")
    called = gymq("collect", "-c", cluster.config, "--rows", rows, "-o", tmp_path / "out.jsonl", "--json")
    assert (called.status, called.json["done"], called.json["refused"]) == (0, 2, 0)
    assert logging.lastResort is not None
    warnings = [record for record in caplog.records if record.name == "gymq.responses"]
    assert [logging.lastResort.format(record) for record in warnings] == [
        "gymq: the request's field 'max_tokens' is dropped: it is not known here; did you mean 'max_output_tokens'?",
        "gymq: the request's field 'background' is dropped: the reply is returned whole",
    ]
