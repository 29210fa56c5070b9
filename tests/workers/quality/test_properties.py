"""What holds for every answer: it equals itself in any notation, nothing beside it counts, something else is not it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from fractions import Fraction
from typing import Any

import pytest
from gymq.workers.resources.arc_agi.worker import GridPuzzles
from gymq.workers.resources.math_formal_lean.program import build_program
from gymq.workers.resources.math_with_judge.worker import Math
from gymq.workers.resources.mcqa.worker import MultipleChoice
from gymq.workers.resources.mini_swe_agent.worker import find_patch
from gymq.workers.resources.structured_outputs.worker import StructuredOutputs
from gymq.workers.resources.text_to_sql.worker import find_query
from gymq.workers.resources.xlam_fc.worker import FunctionCalling
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymq.testing import Harness, function_call, prompt, reply

ASK = prompt("See the row.")
SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

# Text that says nothing: no digits, no formulas, no fences, no markup.
CHATTER = st.text("abcdefgh ,.!?\n", max_size=60).map(lambda text: f" Well. {text}")

Verify = Callable[[dict[str, Any], dict[str, Any]], float]


@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def rewards(loop):
    """The reward of a worker for a row and a response. Each worker is started once."""
    harnesses: dict[type, Harness] = {}

    def run(work: Awaitable[Any]) -> Any:
        return loop.run_until_complete(work)

    def reward(worker: type, row: dict[str, Any], response: dict[str, Any]) -> float:
        if worker not in harnesses:
            harnesses[worker] = run(Harness(worker).__aenter__())
        found: float = run(harnesses[worker].verify({**ASK, **row}, response)).reward
        return found

    yield reward
    for harness in harnesses.values():
        run(harness.__aexit__())


# math_with_judge ------------------------------------------------------------------------------------------------------

FRACTIONS = st.fractions(min_value=-1000, max_value=1000, max_denominator=64)


def notations(value: Fraction) -> list[str]:
    """Ways to write a number that all mean exactly it."""
    top, bottom = abs(value.numerator), value.denominator
    sign = "-" if value < 0 else ""
    ways = [f"{sign}\\frac{{{top}}}{{{bottom}}}", f"{sign}\\dfrac{{{top}}}{{{bottom}}}", f"{sign}{top}/{bottom}"]
    ways += [f"{sign}\\frac{{{top * 3}}}{{{bottom * 3}}}", f"x = {sign}\\frac{{{top}}}{{{bottom}}}"]
    if bottom == 1:
        ways += [f"{sign}{top}", f"{sign}{top}.0", f"{sign}{top:,}"]
    if bottom & (bottom - 1) == 0:  # its decimals end
        ways.append(f"{sign}{float(abs(value))!r}")
    return ways


@SETTINGS
@given(value=FRACTIONS, data=st.data(), chatter=CHATTER)
def test_a_number_equals_itself_in_any_notation_whatever_is_said_around_it(rewards, value, data, chatter):
    expected, given_ = data.draw(st.tuples(*[st.sampled_from(notations(value))] * 2))
    row = {"question": "", "expected_answer": expected}
    assert rewards(Math, row, reply(f"{chatter}\\boxed{{{given_}}}.{chatter}")) == 1.0


@SETTINGS
@given(value=FRACTIONS, other=FRACTIONS, data=st.data())
def test_a_number_is_no_other_number(rewards, value, other, data):
    # Closer ones count as the same: answers are often rounded.
    given_ = data.draw(st.sampled_from(notations(other if abs(value - other) > Fraction(1, 100) else value + 1)))
    expected = data.draw(st.sampled_from(notations(value)))
    assert rewards(Math, {"question": "", "expected_answer": expected}, reply(f"\\boxed{{{given_}}}")) == 0.0


# structured_outputs ---------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@SETTINGS
@given(value=JSON, indent=st.sampled_from([None, 0, 4]), as_ascii=st.booleans(), blanks=st.text(" \n\t", max_size=5))
def test_a_value_fits_the_schema_of_itself_however_it_is_written(rewards, value, indent, as_ascii, blanks):
    text = blanks + json.dumps(value, indent=indent, ensure_ascii=as_ascii) + blanks
    row = {"schema_str": json.dumps({"const": value})}
    assert rewards(StructuredOutputs, row, reply(text)) == 1.0


@SETTINGS
@given(value=JSON, extra=JSON)
def test_a_list_with_an_element_more_does_not_fit_the_schema_of_the_other(rewards, value, extra):
    row = {"schema_str": json.dumps({"const": [value]})}
    assert rewards(StructuredOutputs, row, reply(json.dumps([value, extra]))) == 0.0


# xlam_fc --------------------------------------------------------------------------------------------------------------

NAMES = st.text("abc", min_size=1, max_size=4)
CALLS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "arguments": st.dictionaries(NAMES, JSON, max_size=3)}),
    min_size=1,
    max_size=4,
    unique_by=lambda call: str(call["name"]),
)


def calling(calls: list[dict[str, Any]]) -> dict[str, Any]:
    return reply(*(function_call(call["name"], call["arguments"], f"c{number}") for number, call in enumerate(calls)))


@SETTINGS
@given(calls=CALLS, data=st.data(), chatter=CHATTER)
def test_the_expected_calls_are_right_in_any_order_whatever_is_said_beside_them(rewards, calls, data, chatter):
    made = data.draw(st.permutations(calls))
    turned = [{**call, "arguments": dict(reversed(call["arguments"].items()))} for call in made]
    response = calling(turned)
    response["output"] += reply(chatter)["output"]
    assert rewards(FunctionCalling, {"expected_answers": calls}, response) == 1.0


@SETTINGS
@given(calls=CALLS, data=st.data())
def test_a_call_less_or_twice_is_wrong(rewards, calls, data):
    one = data.draw(st.sampled_from(calls))
    row = {"expected_answers": calls}
    assert rewards(FunctionCalling, row, calling([call for call in calls if call is not one])) == 0.0
    assert rewards(FunctionCalling, row, calling([*calls, one])) == 0.0


# mcqa, arc_agi --------------------------------------------------------------------------------------------------------

LETTERS = "ABCD"
OPTIONS = [{letter: f"this is number {letter.lower()}"} for letter in LETTERS]


@SETTINGS
@given(right=st.sampled_from(LETTERS), chosen=st.sampled_from(LETTERS), before=CHATTER, after=CHATTER)
def test_the_letter_in_the_box_decides_whatever_is_said_around_it(rewards, right, chosen, before, after):
    row = {"options": OPTIONS, "expected_answer": right}
    reward = rewards(MultipleChoice, row, reply(f"{before}\\boxed{{{chosen}}}{after}"))
    assert reward == float(right == chosen)


GRIDS = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 9), min_size=width, max_size=width), min_size=1, max_size=4)
)


@SETTINGS
@given(right=GRIDS, made=GRIDS, separators=st.sampled_from([(",", ":"), (", ", ": ")]), before=CHATTER)
def test_a_grid_equals_itself_and_no_other(rewards, right, made, separators, before):
    row = {"expected_output": right, "train": [], "test_input": [[0]]}
    for grid in (right, made):
        text = json.dumps(grid, separators=separators)
        assert rewards(GridPuzzles, row, reply(f"{before}\\boxed{{{text}}}")) == float(grid == right)


# What is found in a reply ---------------------------------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["a", "b.c", "'x;y'", "(", ")", "=", "\n", "--"]), max_size=8).map(" ".join)


@SETTINGS
@given(words=WORDS, before=CHATTER, after=CHATTER)
def test_a_query_in_a_block_is_found_as_it_is(words, before, after):
    query = f"SELECT {words};"
    assert find_query(f"{before}\n```sql\n{query}\n```\n{after}") == query


@SETTINGS
@given(
    lines=st.lists(st.sampled_from(["simp", "  ring", "exact h", "· rfl"]), min_size=1), before=CHATTER, after=CHATTER
)
def test_a_proof_is_compiled_under_the_statement_of_the_row(lines, before, after):
    proof = "\n".join(f"  {line}" for line in lines)
    given_ = f"{before}\n```lean4\ntheorem another (x : y) : z := by\n{proof}\n```\n{after}"
    statement = "theorem t : p := by\n"
    assert build_program(given_, "import X\n", statement, "last", strip_theorem=True) == f"import X\n{statement}{proof}"


@SETTINGS
@given(lines=st.lists(st.sampled_from([" a", "+b", "-c", "@@ -1 +1 @@"])), before=CHATTER, after=CHATTER)
def test_a_patch_in_a_block_is_found_as_it_is(lines, before, after):
    patch = "\n".join(["diff --git a/x b/x", *lines]) + "\n"
    assert find_patch(reply(f"{before}\n```diff\n{patch}```\n{after}")) == patch
