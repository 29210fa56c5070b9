"""What the recorded cases cannot say: processes, time limits, hostile replies and schemas, conversions one by one."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from gymq.workers.resources.structured_outputs.conversion import Conversion
from gymq.workers.resources.structured_outputs.rules import AsMeant, Published
from gymq.workers.resources.structured_outputs.validation import check_arguments, check_reply, strict
from gymq.workers.resources.structured_outputs.worker import StructuredOutputs

import gymq
from gymq.protocol.codec import encode
from gymq.protocol.messages import Verified
from gymq.testing import Harness, function_call, prompt, reply
from tests.support.processes import kept_processes

__all__ = ["kept_processes"]

BOAT = {"type": "object", "properties": {"vessel": {"type": "string"}}}
ENDLESS = {"type": "string", "pattern": "^(a|a)*b$"}
BOMB = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 10}]" for n in range(1, 12))])


def row(schema: Any, **members: Any) -> dict[str, Any]:
    return {**prompt("Describe the boat."), "schema_str": json.dumps(schema), **members}


def error_of(text: str, schema: Any, kind: Any = "json") -> str | None:
    return check_reply(AsMeant(), text, json.dumps(schema), kind, True).error_type


def test_importing_the_worker_does_not_import_the_validator():
    program = "import sys, gymq.workers.resources.structured_outputs.worker; sys.exit('jsonschema' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("schema", "text", "kind"), [(ENDLESS, json.dumps("a" * 60), "json"), ({"enum": [1]}, BOMB, "yaml")]
)
async def test_a_validation_that_does_not_end_counts_against_the_reply(schema, text, kind, monkeypatch, kept_processes):
    monkeypatch.setattr(StructuredOutputs, "compute_limits", replace(StructuredOutputs.compute_limits, cpu_s=0.5))
    async with Harness(StructuredOutputs, processes=kept_processes) as env:
        verdict = await env.verify(row(schema, schema_type=kind), reply(text))
    assert (verdict.reward, verdict.fields["error_type"]) == (0.0, "validation_error")


async def test_more_memory_than_there_is_counts_against_the_reply(monkeypatch, kept_processes):
    limits = replace(StructuredOutputs.compute_limits, max_memory_bytes=512 * 1024**2)
    monkeypatch.setattr(StructuredOutputs, "compute_limits", limits)
    gigabyte_if_written_out = f"- &a {'x' * 200_000}\n" + "- *a\n" * 5_000
    async with Harness(StructuredOutputs, processes=kept_processes) as env:
        verdict = await env.verify(row({"enum": [1]}, schema_type="yaml"), reply(gigabyte_if_written_out))
    assert (verdict.reward, verdict.fields["error_type"]) == (0.0, "validation_error")
    assert "MemoryError" in verdict.fields["error_message"]


@pytest.mark.parametrize(
    ("schema", "text", "kind"), [(ENDLESS, json.dumps("a" * 60), "json"), ({"enum": [1]}, BOMB, "yaml")]
)
async def test_a_validation_that_the_machine_does_not_get_round_to_is_a_failure(
    schema, text, kind, monkeypatch, kept_processes
):
    async with Harness(StructuredOutputs, processes=kept_processes) as env:
        assert (await env.verify(row(BOAT), reply('{"vessel": "Saoirse"}'))).reward == 1.0
        monkeypatch.setattr(
            StructuredOutputs, "compute_limits", replace(StructuredOutputs.compute_limits, timeout_s=0.3)
        )
        with pytest.raises(gymq.RolloutError) as caught:
            await env.verify(row(schema, schema_type=kind), reply(text))
    assert caught.value.failure_class is gymq.FailureClass.VERIFIER_FAILED


async def test_other_rows_are_verified_while_a_validation_does_not_end(kept_processes):
    async with Harness(StructuredOutputs, processes=kept_processes) as env:
        stuck = asyncio.ensure_future(env.verify(row(ENDLESS), reply(json.dumps("a" * 60))))
        assert (await env.verify(row(BOAT), reply("x"))).fields["error_type"] == "parse_error"
        assert not stuck.done()
        stuck.cancel()


async def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(gymq.OptionsError, match=r'openapi-schema-validator .*pip install "gymq\[resources\]"'):
        await StructuredOutputs().start()


def test_a_reference_to_another_document_is_an_error_and_fetches_nothing(monkeypatch):
    fetched: list[Any] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda request, **_: fetched.append(request))
    assert error_of("1", {"$ref": "http://127.0.0.1:9/schema.json"}) == "validation_error"
    assert fetched == []


@pytest.mark.parametrize(
    ("text", "kind", "error"),
    [
        ("[" * 100_000, "json", "parse_error"),
        ("9" * 5_000, "json", "parse_error"),
        ("\ufeff{}", "json", "parse_error"),
        ('{"vessel": "a"} {}', "json", "parse_error"),
        ('{"vessel": NaN}', "json", "parse_error"),
        ('{"vessel": 1, "vessel": "a"}', "json", None),
        (' \n{"vessel": "\\ud800"}\n', "json", None),
        ('"\\ud800"', "json", "validation_error"),
        ("[" * 100_000, "yaml", "parse_error"),
        ("vessel: !!python/object:os.system {}", "yaml", "parse_error"),
        ("a: 1\n---\nb: 2", "yaml", "parse_error"),
        ("&a [*a]", "yaml", "validation_error"),
        ("vessel: 2024-13-45", "yaml", "parse_error"),
        ("vessel: 2024-12-24", "yaml", "validation_error"),
        ("vessel: on", "yaml", "validation_error"),
        ("1: a", "yaml", "validation_error"),
        ("? [a]\n: b", "yaml", "parse_error"),
        ('{"vessel": "a"}', "yaml", None),
        ("# nothing", "yaml", "validation_error"),
        ("vessel = 'a'", "toml", None),
        ("vessel = 1979-05-27", "toml", "validation_error"),
        ("vessel: a", "toml", "parse_error"),
        ("<vessel>a</vessel>", "xml", None),
        ("<vessel/>", "xml", None),
        ("<vessel a='1'>b</vessel>", "xml", "validation_error"),
        ("<vessel>", "xml", "parse_error"),
        ("<!DOCTYPE v [<!ENTITY a 'b'>]><vessel>&a;</vessel>", "xml", "parse_error"),
        ("<a>" * 50_000 + "</a>" * 50_000, "xml", "validation_error"),
        ("a\n" + "x" * 200_000, "csv", "parse_error"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_replies(text, kind, error):
    finding = check_reply(AsMeant(), text, json.dumps(BOAT), kind, True)
    assert finding.error_type == error
    encode(Verified(reward=0.0, verdict={"error_message": finding.error_message}))


@pytest.mark.parametrize(
    ("schema_text", "error"),
    [
        ("", "schema_error"),
        ("{oops", "schema_error"),
        ("[" * 100_000, "schema_error"),
        ('{"a":' * 100_000, "schema_error"),
        ("[]", "validation_error"),
        ("5", "validation_error"),
        ('{"type": "strin"}', "validation_error"),
        ('{"properties": 5}', "validation_error"),
        ('{"pattern": "("}', "validation_error"),
        ('{"$ref": "#"}', "validation_error"),
        ("true", None),
        ("false", "validation_error"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_schemas(schema_text, error):
    assert check_reply(AsMeant(), '{"a": 1}', schema_text, "json", True).error_type == error
    assert check_arguments(AsMeant(), '{"a": 1}', None, schema_text).error_type == error


def test_every_schema_with_properties_becomes_strict_but_those_in_lists():
    inner: dict[str, Any] = {"properties": {"b": {}}}
    made_strict = inner | {"required": ["b"], "additionalProperties": False}
    schema = {
        "properties": {"a": {"items": inner}},
        "required": [],
        "additionalProperties": True,
        "$defs": {"one": inner},
        "not": inner,
        "anyOf": [inner],
        "const": inner,
        "default": inner,
    }
    assert strict(schema) == {
        "properties": {"a": {"items": made_strict}},
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"one": made_strict},
        "not": made_strict,
        "anyOf": [inner],
        "const": inner,
        "default": inner,
    }


def test_a_property_may_be_called_properties():
    schema = {"type": "object", "properties": {"properties": {"type": "array", "items": {"type": "string"}}}}
    assert error_of('{"properties": ["a"]}', schema) is None
    assert error_of('{"properties": [1]}', schema) == "validation_error"


@pytest.mark.parametrize(
    ("schema", "text", "error"),
    [
        ({"type": "integer"}, "2.0", None),
        ({"type": "integer"}, "true", "validation_error"),
        ({"type": "string", "nullable": True}, "null", "validation_error"),
        ({"type": "string", "format": "date"}, '"soon"', None),
        ({"type": "string", "pattern": "b"}, '"abc"', None),
        ({"$ref": "#/$defs/name", "$defs": {"name": {"type": "string"}}}, "1", "validation_error"),
        ({"anyOf": [BOAT, {"type": "null"}]}, '{"other": 1}', None),
    ],
)
def test_validation(schema, text, error):
    assert error_of(text, schema) == error


@pytest.mark.parametrize(
    ("data", "schema", "typed"),
    [
        ("9", {"type": "integer"}, 9),
        ("9.5", {"type": "integer"}, "9.5"),
        ("9.5", {"type": "number"}, 9.5),
        ("TRUE", {"type": "boolean"}, True),
        ("0", {"type": "boolean"}, False),
        ("yes", {"type": "boolean"}, "yes"),
        ("9", {"type": ["integer", "null"]}, 9),
        ("9", {}, "9"),
        ("9", True, "9"),
        (None, {"type": "string"}, ""),
        (None, {"type": "integer"}, None),
        (None, {"type": "array"}, []),
        ("a", {"type": "array"}, ["a"]),
        ({"one": ["1", "2"]}, {"type": "array", "items": {"type": "integer"}}, [1, 2]),
        ({"one": "1"}, {"type": "array", "items": {"type": "integer"}}, [1]),
        ({"one": "1", "two": "2"}, {"type": "array"}, [{"one": "1", "two": "2"}]),
        ({"a": "1", "b": "1"}, {"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1, "b": "1"}),
        ("1", {"type": "object", "properties": {}}, "1"),
    ],
)
def test_texts_of_xml_get_the_types_of_the_schema(data, schema, typed):
    assert Conversion(schema, "xml").document(data) == typed
    assert type(Conversion(schema, "xml").document(data)) is type(typed)


@pytest.mark.parametrize(
    ("cell", "kind", "typed"),
    [
        ("9", "integer", 9),
        ("x", "integer", "x"),
        ("", "integer", ""),
        ("", ["integer", "null"], None),
        (None, ["integer", "null"], None),
        ("", ["integer", "string"], ""),
        ("9", ["integer", "string"], 9),
        ("9", ["string", "integer"], "9"),
        ("x", ["null", "integer", "boolean"], "x"),
        ("false", ["null", "integer", "boolean"], False),
        ("9", None, "9"),
    ],
)
def test_cells_of_csv_get_the_types_of_the_schema(cell, kind, typed):
    schema = {"type": "array", "items": {"properties": {"a": {"type": kind} if kind else {}}}}
    (row,) = Conversion(schema, "csv").document([{"a": cell}])
    assert row == {"a": typed}
    assert type(row["a"]) is type(typed)


def test_a_csv_line_that_is_too_long_or_too_short_does_not_fit():
    items = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    schema = {"type": "array", "items": items}
    assert error_of("a,b\n1,2", schema, "csv") is None
    assert error_of("a,b\n1,2,3", schema, "csv") == "validation_error"
    assert error_of("a,b\n1", schema, "csv") == "validation_error"


async def test_without_conversion_everything_in_xml_is_a_text(kept_processes):
    schema = {"type": "object", "properties": {"crew": {"type": "integer"}}}
    rewards = []
    for options in ({}, {"xml_coerce_types": False}):
        async with Harness(StructuredOutputs, options, processes=kept_processes) as env:
            verdict = await env.verify(row(schema, schema_type="xml"), reply("<crew>2</crew>"))
            rewards.append(verdict.reward)
    assert rewards == [1.0, 0.0]


@pytest.mark.parametrize(
    ("members", "output", "error"),
    [
        ({}, ['{"vessel": "a"}'], "missing_tool_call"),
        ({}, [function_call("emit", {"vessel": "a"})] * 2, "multiple_tool_calls"),
        ({"tool_name": "save"}, [function_call("emit", {"vessel": "a"})], "wrong_tool_name"),
    ],
    ids=["none", "two", "other"],
)
async def test_there_has_to_be_one_call_of_the_wanted_tool(members, output, error, kept_processes):
    async with Harness(StructuredOutputs, processes=kept_processes) as env:
        verdict = await env.verify(row(BOAT, response_mode="tool_call", **members), reply(*output))
    assert (verdict.reward, verdict.fields["error_type"]) == (0.0, error)


async def test_texts_around_a_call_and_the_format_do_not_matter(kept_processes):
    members = {"response_mode": "tool_call", "schema_type": "xml", "tool_name": "", "tool_payload_key": ""}
    async with Harness(StructuredOutputs, processes=kept_processes) as env:
        verdict = await env.verify(row(BOAT, **members), reply("Sure!", function_call("emit", {"vessel": "a"})))
    assert verdict.reward == 1.0


@pytest.mark.parametrize(
    ("arguments", "payload_key", "error"),
    [
        ('{"vessel": "a"}', None, None),
        ('{"vessel": 1}', None, "validation_error"),
        ("", None, "tool_arguments_parse_error"),
        ("{oops", None, "tool_arguments_parse_error"),
        ("[" * 100_000, None, "tool_arguments_parse_error"),
        ('{"vessel": "a"}', "boat", "missing_tool_payload_key"),
        ('["boat"]', "boat", "missing_tool_payload_key"),
        ('{"boat": {"vessel": "a"}}', "boat", None),
        ('{"boat": null}', "boat", "validation_error"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_arguments_of_a_call(arguments, payload_key, error):
    assert check_arguments(AsMeant(), arguments, payload_key, json.dumps(BOAT)).error_type == error


async def test_a_row_whose_mode_is_null_is_about_text(kept_processes):
    async with Harness(StructuredOutputs, processes=kept_processes) as env:
        verdict = await env.verify(row(BOAT, response_mode=None), reply('{"vessel": "a"}'))
    assert verdict.reward == 1.0


async def test_an_error_of_the_model_comes_first(kept_processes):
    response = reply(function_call("emit", {"vessel": "a"})) | {"error": {"code": "server_error", "message": "oops"}}
    async with Harness(StructuredOutputs, processes=kept_processes) as env:
        verdict = await env.verify(row(BOAT, response_mode="tool_call"), response)
    assert verdict.fields["error_type"] == "api_error"


@pytest.mark.parametrize(
    "members",
    [
        {"schema_type": "JSON"},
        {"schema_type": None},
        {"schema_str": BOAT},
        {"response_mode": "voice"},
    ],
)
async def test_a_row_that_does_not_fit_is_refused(members, kept_processes):
    async with Harness(StructuredOutputs, processes=kept_processes) as env:
        with pytest.raises(gymq.InvalidTask, match=next(iter(members))):
            await env.verify(row(BOAT, **members), reply("{}"))


NUMBER = {"type": "object", "properties": {"n": {"type": "number", "minimum": 1, "maximum": 5}}}
ROWS = {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("schema", "text", "kind"),
    [
        (NUMBER, '{"n": NaN}', "json"),
        (NUMBER, "n: .nan", "yaml"),
        (NUMBER, "n = nan", "toml"),
        ({"type": "number", "minimum": 1}, "Infinity", "json"),
        ({"type": "array", "items": {"type": "number"}}, "[[1e999]]"[1:-1], "json"),
        (ROWS, "I cannot do that, sorry", "csv"),
        ({"type": "array"}, "I cannot do that, sorry", "csv"),
        (ROWS, 'a,b\n1,"cut', "csv"),
        (ROWS, 'a,b\n1,"x"y', "csv"),
    ],
)
def test_what_says_nothing_fits_only_where_the_peer_is_followed(schema, text, kind):
    assert error_of(text, schema, kind) == "parse_error"
    assert check_reply(Published(), text, json.dumps(schema), kind, True).error_type is None


@pytest.mark.parametrize(("text", "error"), [("a,b", None), ("b,a", None), ("a,b\n1,x", None), ("a,c", "parse_error")])
def test_a_csv_without_rows_names_its_columns(text, error):
    assert error_of(text, ROWS, "csv") == error


@pytest.mark.parametrize(("text", "kind"), [("a,b\nnan,x", "csv"), ("a,b\n-1e999,x", "csv"), ("<n>NaN</n>", "xml")])
def test_a_text_that_becomes_a_number_without_value_does_not_fit(text, kind):
    schema = ROWS if kind == "csv" else {"type": "object", "properties": {"n": {"type": "number", "minimum": 1}}}
    assert error_of(text, schema, kind) == "validation_error"
    assert check_reply(Published(), text, json.dumps(schema), kind, True).error_type is None


@pytest.mark.parametrize("number", ["1_0", "٣", "１０", "1_0.5", "1e1_0"])
@pytest.mark.parametrize("type_", ["integer", "number"])
def test_only_what_other_languages_read_as_a_number_is_one(number, type_):
    peer = None if type_ == "number" or not set(number) & set("e.") else "validation_error"
    schema = {"type": "object", "properties": {"n": {"type": type_}}}
    files: list[Any] = [(f"<n>{number}</n>", "xml", schema), (f"n\n{number}", "csv", {"items": schema})]
    for text, kind, of_kind in files:
        assert error_of(text, of_kind, kind) == "validation_error"
        assert check_reply(Published(), text, json.dumps(of_kind), kind, True).error_type == peer


@pytest.mark.parametrize("number", ["7", " +7 ", "-007", "1.", ".5", "-1.5E+3"])
def test_numbers_are_read_in_each_usual_form(number):
    schema = {"items": {"type": "object", "properties": {"n": {"type": "number"}}}}
    assert error_of(f"n\n{number}", schema, "csv") is None


def test_nan_in_a_tool_call_is_no_number():
    schema = json.dumps(NUMBER)
    assert check_arguments(AsMeant(), '{"n": NaN}', None, schema).error_type == "tool_arguments_parse_error"
    assert check_arguments(Published(), '{"n": NaN}', None, schema).error_type is None


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        (r"^\p{L}+$", "Straße", True),
        (r"^\p{L}+$", "a1", False),
        (r"^\P{L}+$", "12", True),
        (r"\p{Script=Greek}", "x = π", True),
        (r"^\d+$", "12", True),
    ],
)
def test_patterns_may_name_unicode_properties(pattern, text, fits):
    assert (error_of(json.dumps(text), {"type": "string", "pattern": pattern}) is None) is fits
    names = {"type": "object", "propertyNames": {"pattern": pattern}}
    assert (error_of(json.dumps({text: 1}), names) is None) is fits
    members = {"type": "object", "patternProperties": {pattern: {"type": "null"}}}
    assert (error_of(json.dumps({text: 1}), members) is None) is not fits


@pytest.mark.parametrize("pattern", ["(", r"\p{Nonsense}", r"\p{L"])
def test_a_malformed_pattern_is_an_error_of_the_schema(pattern):
    assert error_of('"a"', {"type": "string", "pattern": pattern}) == "validation_error"


def test_a_dynamic_reference_is_followed_within_the_schema():
    tree = {
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
    }
    assert error_of('{"children": [{"children": []}]}', tree) is None
    assert error_of('{"children": [{"children": 1}]}', tree) == "validation_error"


STEPS = (
    ("0.01", "19.99 1.11 0.07 1e2 -4.35 0", "19.995 0.001"),
    ("0.1", "0.7 0.3 1.1 12345.6", "0.75"),
    ("3", "9 -3.0", "10 1.5"),
)


@pytest.mark.parametrize(("step", "good", "bad"), STEPS)
def test_multiples_are_those_of_the_written_digits(step, good, bad):
    schema = f'{{"type": "number", "multipleOf": {step}}}'
    assert [one for one in good.split() if check_reply(AsMeant(), one, schema, "json", True).error_type] == []
    assert [one for one in bad.split() if not check_reply(AsMeant(), one, schema, "json", True).error_type] == []


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d{3}$", "123", ("123\n", "\u0661\u0662\u0663", "1234")),
        (r"^[$]\$\w+$", "$$a", ("$$a\n", "$$\u00e9")),
        (r"^\p{L}+$", "\u00e9", ("\u00e9\n", "1")),
    ],
)
def test_patterns_are_those_of_ecmascript(pattern, good, bad):
    schema = {"type": "string", "pattern": pattern}
    assert error_of(json.dumps(good), schema) is None
    assert [one for one in bad if error_of(json.dumps(one), schema) is None] == []


INTEGER = {"type": "integer"}
OPTIONAL = {"anyOf": [INTEGER, {"type": "null"}]}
NAMED = {"$defs": {"n": INTEGER, "m": {"$ref": "#/$defs/n"}}}


@pytest.mark.parametrize(
    ("schema", "text", "typed"),
    [
        ({"type": ["integer", "null"]}, "12", 12),
        ({"type": ["integer", "null"]}, None, None),
        ({"type": ["null", "string"]}, "", None),
        (OPTIONAL, "12", 12),
        (OPTIONAL, "x", "x"),
        ({"oneOf": [{"type": "boolean"}, {"type": "string"}]}, "true", True),
        ({"allOf": [{"minimum": 1}, INTEGER]}, "12", 12),
        ({"allOf": [OPTIONAL]}, "12", 12),
        ({"type": ["string", "integer"]}, "12", "12"),
        ({"type": ["number", "string"]}, "1.5", 1.5),
        ({"type": ["number", "string"]}, "1_5", "1_5"),
        ({"$ref": "#/$defs/n"}, "12", 12),
        ({"$ref": "#/$defs/m"}, "12", 12),
        ({"$ref": "#/$defs/none"}, "12", "12"),
        ({"$ref": "other.json"}, "12", "12"),
        ({"enum": [1, 2]}, "1", 1),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"const": True}, "true", True),
        (INTEGER, "12.0", 12.0),
        (INTEGER, "12.5", "12.5"),
    ],
)
def test_texts_become_what_the_schema_says_wherever_it_says_it(schema, text, typed):
    root = {"type": "object", "properties": {"n": schema}} | NAMED
    found = Conversion(root, "xml").document({"n": text})
    assert (found["n"], type(found["n"])) == (typed, type(typed))
    rows = Conversion({"type": "array", "items": {"properties": {"n": schema}}} | NAMED, "csv").document([{"n": text}])
    assert rows == [{"n": typed}]
    nested = {"type": "object", "properties": {"r": {"$ref": "#/$defs/r"}}, "$defs": NAMED["$defs"] | {"r": root}}
    assert Conversion(nested, "xml").document({"r": {"n": text}}) == {"r": {"n": typed}}


def test_schemas_that_refer_to_themselves_end():
    tree = {
        "$ref": "#/$defs/t",
        "$defs": {"t": {"anyOf": [{"$ref": "#/$defs/t"}, {"properties": {"t": {"$ref": "#"}}}]}},
    }
    assert Conversion(tree, "xml").document({"t": {"t": {"t": "1"}}}) == {"t": {"t": {"t": "1"}}}
