import json
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.resources.structeval import worker
from gymq.workers.resources.structeval.paths import has_path
from gymq.workers.resources.structeval.scoring import extract_code, raw_score, scores_of
from gymq.workers.resources.structeval.worker import StructEval

import gymq
from gymq.processes import CpuTimeUsedUp
from gymq.testing import Harness, reply

DATA = Path(__file__).parents[1] / "data"
EXAMPLES = [json.loads(line) for line in (DATA / "example.jsonl").read_text(encoding="utf-8").splitlines()]
GOLD = [json.loads(line) for line in (DATA / "gold.jsonl").read_text(encoding="utf-8").splitlines()]


async def test_the_examples_can_be_solved():
    async with Harness(StructEval) as env:
        for one in GOLD:
            assert (await env.verify(EXAMPLES[one["row"] - 1], reply(one["reply"]))).reward == 1.0


async def test_the_scores_are_fields_of_the_verdict():
    async with Harness(StructEval) as env:
        verdict = await env.verify(EXAMPLES[2], reply("[lamp]\nColour = 1\nperiod = 2"))
        empty = await env.verify(EXAMPLES[2], reply(" \n"))
        odd = await env.verify({**EXAMPLES[2], "output_type": "HTML", "rendering": True}, reply("lamp.Colour"))
    assert verdict.reward == 0.47
    assert verdict.fields == {
        "rendering": False,
        "render_score": 1.0,
        "key_validation_score": 1 / 3,
        "raw_output_score": 0.0,
        "error_type": None,
        "error_message": None,
    }
    assert (empty.reward, empty.fields["error_type"]) == (0.0, "empty_response")
    assert (odd.reward, odd.fields["error_type"], odd.fields["rendering"]) == (0.0, "unsupported_type", True)
    assert odd.fields["raw_output_score"] == 1 / 3


@pytest.mark.parametrize("change", [{"output_type": 3}, {"raw_output_metric": "a"}, {"raw_output_metric": [1]}])
async def test_a_row_without_its_fields_is_refused(change):
    async with Harness(StructEval) as env:
        with pytest.raises(gymq.InvalidTask, match=next(iter(change))):
            await env.verify({**EXAMPLES[0], **change}, reply("{}"))


@pytest.mark.parametrize("error", [CpuTimeUsedUp("more than 20 s"), MemoryError()])
async def test_a_reply_that_is_too_much_for_the_parser_is_a_parse_error(error, monkeypatch):
    async def compute(*_: Any) -> None:
        raise error

    async with Harness(StructEval) as env:
        monkeypatch.setattr(env.author, "compute", compute)
        verdict = await env.verify(EXAMPLES[1], reply("a: 1"))
    assert (verdict.reward, verdict.fields["error_type"]) == (0.0, "parse_error")


async def test_a_parser_that_the_machine_does_not_let_end_gives_no_verdict(monkeypatch):
    async def compute(*_: Any) -> None:
        raise TimeoutError

    async with Harness(StructEval) as env:
        monkeypatch.setattr(env.author, "compute", compute)
        with pytest.raises(gymq.RolloutError) as raised:
            await env.verify(EXAMPLES[1], reply("a: 1"))
    assert raised.value.failure_class == gymq.FailureClass.VERIFIER_FAILED


async def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(worker, "LIBRARIES", ("no_such_library",))
    with pytest.raises(gymq.OptionsError, match="no-such-library is not installed"):
        async with Harness(StructEval):
            pass


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (" a ", "a"),
        ("x<|begin_code|> \n a <|End_Code|> b", "a"),
        ("<|BEGIN_CODE|>a", "a"),
        ("<|BEGIN_CODE|><|END_CODE|>", ""),
        ("&lt;|BEGIN_CODE|&gt;a&lt;|END_CODE|&gt;", "a"),
        ("x\n```json\na\n```\n```\nb\n```", "a"),
        ("```anything `` at all\na", "a"),
        ("<|BEGIN_CODE|>a<|END_CODE|>```\nb\n```", "b"),
        ("<|BEGIN_CODE|>\n```toml\na\n```\n<|END_CODE|>", "a"),
        ("```json a ```", "```json a ```"),
        ("<think>\n\n</think>\n\na", "a"),
        ("<think>\nb\n</think>\n\na", "<think>\nb\n</think>\n\na"),
        (r"a\nb", "a\nb"),
        (r'"a\"b"', '"a"b"'),
        ("é", "Ã©"),
        (r"\u0062\d", r"b\d"),
        ("é\\", "é\\"),
        ("```", "```"),
    ],
)
def test_code_is_read_out_of_a_reply(text, code):
    assert extract_code(text) == code


@pytest.mark.parametrize(
    "part", ["```", "<|BEGIN_CODE|>", "```\n", "<think>\n\n</think>\n\n", "&lt;", "\\", "\\n", "é"]
)
def test_a_long_reply_is_read_in_one_pass(part):
    extract_code(part * (1_000_000 // len(part)))


DATA_WITH_PATHS: dict[Any, Any] = {
    "a": {"b.c": None, "d[0]": 0, "*": 1, "": 1},
    "rows": [{"x": 1}, {"y": [[], [7]]}],
    "id": 3,
    "csv_headers": ["name", " unit "],
    7: 1,
    "[0]": 1,
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", True),
        ("...", True),
        ("a", True),
        ("a.`b.c`", True),
        ("a.b.c", False),
        ("a.`d[0]`", True),
        ("a.*", False),
        ("rows[0].x", True),
        ("rows.[1].y[1][0]", True),
        ("rows[2]", False),
        ("rows[-1]", False),
        ("rows[x]", False),
        ("rows[]", False),
        ("rows[0", False),
        ("rows.0", False),
        ("rows.*.x", True),
        ("rows.*.y.*.*", True),
        ("rows.*.z", False),
        ("[0]", False),
        ("@id", True),
        ("@a.`b.c`", True),
        ("ID", False),
        ("7", False),
        ("csv::name", True),
        ("csv::unit", False),
        ("csv:: unit ", True),
        ("csv::name.x", False),
        ("a.csv::name", False),
    ],
)
def test_paths_lead_to_keys_and_elements(path, found):
    assert has_path(DATA_WITH_PATHS, path) is found


@pytest.mark.parametrize("headers", [None, "name", 3])
def test_headers_that_are_no_list_have_no_column(headers):
    assert not has_path({"csv_headers": headers}, "csv::name")


def test_a_list_that_is_named_many_times_is_looked_at_once():
    bomb: list[Any] = []
    for _ in range(60):
        bomb = [bomb, bomb]
    assert not has_path(bomb, ".".join(["*"] * 60 + ["x"]))


@pytest.mark.parametrize(
    ("kind", "code", "render"),
    [
        ("json", '{"a": 1}', 1.0),
        ("json", "[NaN]", 1.0),
        ("json", "0", 0.0),
        ("json", "{}", 0.0),
        ("json", "[" * 100_000, 0.0),
        ("yaml", "a: on", 1.0),
        ("yaml", "null", 0.0),
        ("yaml", "a: 1\n---\nb: 2", 0.0),
        ("yaml", "!!python/object:int 3", 0.0),
        ("toml", 'a = [1, "b"]', 0.0),
        ("toml", "a = [1, 2]", 1.0),
        ("toml", "", 0.0),
        ("xml", "<a/>", 1.0),
        ("xml", "<a/><b/>", 0.0),
        ("xml", '<!DOCTYPE a [<!ENTITY b "x">]><a>&b;</a>', 0.0),
        ("csv", "", 1.0),
        ("csv", "a,b", 1.0),
    ],
)
def test_what_can_be_parsed_is_rendered(kind, code, render):
    scores = scores_of(code, kind, [])
    assert (scores.render_score, scores.reward) == (render, 0.2 * render)
    assert scores.error_type == (None if render else "parse_error")


@pytest.mark.parametrize(
    ("kind", "code", "path"),
    [
        ("xml", '<a i="1"><b/><c>x</c><c/></a>', "a.@i"),
        ("xml", "<a><b/></a>", "a.b"),
        ("xml", "<a><c>x</c><c/></a>", "a.c[1]"),
        ("yaml", "a: &x [1]\nb: *x", "b[0]"),
        ("csv", "n,m\n1,2\n", "csv_rows[0].m"),
        ("toml", "[[a]]\nb.c = 1", "a[0].b.c"),
    ],
)
def test_each_format_has_paths(kind, code, path):
    assert scores_of(code, kind, [path, path]).reward == 1.0
    assert scores_of(code, kind, [path, "z"]).key_validation_score == 0.5


def test_paths_in_the_text_are_counted_in_any_case():
    assert raw_score("The Boat.Name and boat.name", ["boat.name", "boat.crew"]) == 0.5
    assert raw_score("boat", []) == 0.0
