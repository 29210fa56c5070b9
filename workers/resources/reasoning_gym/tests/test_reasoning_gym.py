"""What the recorded cases cannot say: hostile answers, endless scorers, long replies, rows that do not fit."""

import contextlib
import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from gymq.workers.resources.reasoning_gym.scoring import EVALUATED, PARSED, is_formula, published_score, score
from gymq.workers.resources.reasoning_gym.worker import ReasoningGym, answer_as_meant, published_answer

import gymq
from gymq.testing import Harness, prompt, reply
from tests.support.processes import kept_processes

__all__ = ["kept_processes"]

library = pytest.importorskip("reasoning_gym", reason='needs pip install "gymq[reasoning-gym]"')

EXAMPLES = Path(__file__).parents[1] / "data" / "example.jsonl"


def row(task, answer="5", **metadata):
    return {**prompt("Go."), "question": "Go.", "answer": answer, "metadata": {"source_dataset": task, **metadata}}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>1</answer> <answer> 2\n</answer> \\boxed{3}", "2"),
        ("<answer>1</answer><answer></answer>", ""),
        ("<answer>1 <answer>2</answer>", "1 <answer>2"),
        ("<answer>1", "<answer>1"),
        ("<Answer>1</Answer> \\boxed{} \\boxed{\\text{7}} \\boxed{8}", "\\text{7"),
        ("\\boxed{ } ", ""),
        ("\\boxed{7", "\\boxed{7"),
        ("  seven ", "seven"),
        ("", ""),
        ("<answer>" * 200_000 + "x", "<answer>" * 200_000 + "x"),
        ("\\boxed{" * 200_000, "\\boxed{" * 200_000),
    ],
    ids=range(11),
)
def test_the_answer_is_read_out_of_tags_a_box_or_the_whole_reply(text, answer):
    assert published_answer(text, None) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>7</answer> no: <answer> 12 </answer>", "12"),
        ("<think><answer>7</answer></think> <answer>12</answer>", "12"),
        ("<think><answer>12</answer></think> <answer>7</answer>", "7"),
        ("<think>12", ""),
        ("\\boxed{7} no: \\boxed{12}", "12"),
        ("<answer>\\boxed{12}</answer>", "12"),
        ("<answer>**12**</answer>", "12"),
        ("<answer>**7**</answer>", "**7**"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("it is 12", "it is 12"),
    ],
)
def test_the_answer_that_the_reply_stands_by_is_read(text, answer):
    assert answer_as_meant(text, "12") == answer


@pytest.mark.parametrize("task", sorted(EVALUATED | PARSED))
def test_the_librarys_own_answers_get_full_score_where_code_is_kept_out(task):
    for entry in library.create_dataset(task, size=10, seed=3):
        assert score(task, entry["answer"], entry) == 1.0


@pytest.mark.parametrize("task", sorted(EVALUATED | PARSED))
@pytest.mark.parametrize(
    "code",
    [
        "[open({path!r}, 'w').close()]",
        "__import__('pathlib').Path({path!r}).touch()",
        "(1).__class__.__base__.__subclasses__()",
        "[entry['metadata'][n]for n in[open({path!r},'w')]]",
    ],
)
def test_code_in_an_answer_does_not_run(task, code, tmp_path):
    target = tmp_path / "ran"
    entry = library.create_dataset(task, size=1, seed=3)[0]
    assert score(task, code.format(path=str(target)), entry) <= 0.01
    assert not target.exists()


@pytest.mark.parametrize(
    ("task", "reply_text"),
    [
        ("bitwise_arithmetic", "0x1"),
        ("simple_integration", "x"),
        ("intermediate_integration", "x"),
        ("polynomial_multiplication", "x"),
        ("number_sorting", "[1]"),
    ],
)
async def test_code_in_a_row_does_not_run(task, reply_text, tmp_path, kept_processes):
    code = f"__import__('pathlib').Path({str(tmp_path / 'run')!r}).touch()"
    metadata = {"source_dataset": task, "problem": code, "integrand": code, "variable": "x", "direction": "ascending"}
    row = {**prompt("?"), "question": "?", "answer": code, "metadata": metadata}
    async with Harness(ReasoningGym, processes=kept_processes) as env:
        with contextlib.suppress(gymq.InvalidTask):
            assert (await env.verify(row, reply(reply_text))).reward == 0.0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("task", "name"), [("string_insertion", "oracle_answer"), ("n_queens", "valid_solutions[0]")])
def test_an_answer_cannot_name_the_expected_one(task, name):
    assert score(task, name, library.create_dataset(task, size=1, seed=3)[0]) == 0.0


def test_lists_are_still_read_where_the_library_reads_them():
    entry = library.create_dataset("string_insertion", size=1, seed=3)[0]
    assert score("string_insertion", str(list(entry["answer"])), entry) == 0.1


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("40*(94 - 90) + 83 - 74", True),
        ("x**3/3 + 2.5e-3*exp(x) + C", True),
        ("5! % 7", True),
        ("lambdify(x, 1)", False),
        ("x.func", False),
        ("5 .real", False),
        ("2.real", False),
        ("'x'", False),
        ("x_1", False),
        ("[1]", False),
        ("the sum is 5", False),
    ],
)
def test_a_formula_has_numbers_operators_variables_and_elementary_functions(text, fits):
    assert is_formula(text, integrals=True) is fits


async def test_an_answer_that_computes_for_ever_is_worth_nothing(monkeypatch):
    monkeypatch.setattr(ReasoningGym, "compute_limits", replace(ReasoningGym.compute_limits, cpu_s=0.5))
    async with Harness(ReasoningGym) as env:
        assert (await env.verify(row("countdown", numbers=[9], target=9), reply("9**9**9**9"))).reward == 0.0
        assert (await env.verify(row("chain_sum"), reply("5"))).reward == 1.0


async def test_a_scorer_that_the_machine_does_not_get_round_to_is_a_failure_and_no_zero(monkeypatch, kept_processes):
    async with Harness(ReasoningGym, processes=kept_processes) as env:
        monkeypatch.setattr(ReasoningGym, "compute_limits", replace(ReasoningGym.compute_limits, timeout_s=0.5))
        with pytest.raises(gymq.RolloutError) as caught:
            await env.verify(row("countdown", numbers=[9], target=9), reply("9**9**9**9"))
        monkeypatch.undo()
        assert (await env.verify(row("chain_sum"), reply("5"))).reward == 1.0
    assert caught.value.failure_class is gymq.FailureClass.VERIFIER_FAILED


@pytest.mark.parametrize("task", ["no_such_task", "composite", "knights_knaves"])
def test_what_the_library_cannot_score_is_zero(task):
    assert score(task, "5", {"question": "Go.", "answer": None, "metadata": {"source_dataset": task}}) == 0.0


@pytest.mark.parametrize(
    "members",
    [
        {"metadata": {}},
        {"metadata": {"source_dataset": ""}},
        {"metadata": {"source_dataset": 5}},
        {"metadata": None},
        {"answer": 5},
        {"question": None},
    ],
)
async def test_a_row_that_does_not_fit_is_refused(members):
    async with Harness(ReasoningGym) as env:
        with pytest.raises(gymq.InvalidTask, match=next(iter(members))):
            await env.verify(row("chain_sum") | members, reply("5"))


async def test_a_row_without_an_answer_is_refused():
    without = row("chain_sum")
    del without["answer"]
    async with Harness(ReasoningGym) as env:
        with pytest.raises(gymq.InvalidTask, match="answer"):
            await env.verify(without, reply("5"))


async def test_the_expected_answers_of_the_examples_get_full_score(kept_processes):
    async with Harness(ReasoningGym, processes=kept_processes) as env:
        for line in EXAMPLES.read_text().splitlines():
            example = json.loads(line)
            verdict = await env.verify(example, reply(f"<answer>{example['answer']}</answer>"))
            assert verdict.reward == 1.0


async def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(gymq.OptionsError, match=r'reasoning-gym is not installed: pip install "gymq\[reasoning-gym\]"'):
        await ReasoningGym().start()


def test_importing_the_worker_does_not_import_the_library():
    program = "import sys, gymq.workers.resources.reasoning_gym.worker; sys.exit('reasoning_gym' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


NO_NUMBERS = ("nan", "NaN", "nan+nanj", "inf", "-inf", "infj", "Infinity", "nani")
NUMBERS = ("0", "-0", "0.0", "0/1", "1", "-1", "2", "42", "100", "0.5", "1e999", "-1e999", "0 0", "[0]", "[[0]]")
WORDS = ("yes", "no", "Yes", "No", "True", "False", "true", "None", "null", "banana", "impossible", "A", "x", "R", "up")
SIGNS = ("", " ", "[]", "{}", "()", "-", ".", "?", "*", "the", "N/A", "I cannot answer.")
SAYING_NOTHING = (*NO_NUMBERS, *NUMBERS, *WORDS, *SIGNS)


def json_rows(task, size):
    return json.loads(json.dumps(list(library.create_dataset(task, size=size, seed=7)), default=str))


TAKES_LONG = {"arc_agi", "knight_swap", "sokoban"}
MADE = sorted(set(library.factory.DATASETS) - {"composite"})


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=[pytest.mark.nightly] if task in TAKES_LONG else []) for task in MADE]
)
def test_no_constant_is_always_right_and_the_librarys_answer_is(task):
    rows = json_rows(task, size=6)
    for row in rows:
        if row["answer"] is not None:
            assert score(task, row["answer"], row) == 1.0
    always = [text for text in SAYING_NOTHING if all(score(task, text, row) >= 0.5 for row in rows)]
    assert always == []


@pytest.mark.parametrize(
    ("task", "answer", "reward"),
    [
        ("countdown", "7*3 - 5", 1.0),
        ("countdown", "5*7*3*.0e1+16e0", 0.05),
        ("countdown", "(5+7+3)*(x-x)+16e0", 0.05),
        ("countdown", "7*3 - 5 + 0*3", 0.05),
        ("countdown", "7*3 - \u0665", 0.01),
        ("puzzle24", "8*(5*1 - 2)", 1.0),
        ("puzzle24", "6*4*1*1", 0.01),
        ("puzzle24", "5*1*2*8*.0e1+24e0", 0.01),
        ("puzzle24", "8*2 + 8 + 1/5", 0.01),
        ("puzzle24", "5*(2 + 1) + 8", 0.01),
        ("puzzle24", "(8 - 2**1)*5 - 6", 0.01),
    ],
)
def test_an_expression_has_to_make_the_target_of_the_given_numbers(task, answer, reward):
    numbers = {"countdown": {"numbers": [5, 7, 3], "target": 16}, "puzzle24": {"numbers": [5, 1, 2, 8]}}[task]
    entry = {"question": "", "answer": None, "metadata": numbers}
    assert score(task, answer, entry) == reward


@pytest.mark.parametrize("task", ["simple_integration", "intermediate_integration"])
def test_the_question_is_no_answer_to_a_question_for_an_integral(task):
    entry = {"question": "", "answer": "x**3 + C", "metadata": {"integrand": "3*x**2", "variable": "x"}}
    assert published_score(task, "Integral(3*x**2, x)", entry) == 1.0
    assert score(task, "Integral(3*x**2, x)", entry) == 0.0
    assert score(task, "x**3 + 4", entry) == 1.0


def test_a_value_that_is_only_near_is_no_24():
    entry = {"question": "", "answer": None, "metadata": {"numbers": [2, 2, 5, 9]}}
    assert published_score("puzzle24", "2 + 5/2*9", entry) == 1.0
    assert score("puzzle24", "2 + 5/2*9", entry) == 0.01


@pytest.mark.parametrize(
    ("task", "answer"), [("game_of_life_halting", "banana"), ("coin_flip", "0"), ("complex_arithmetic", "nan")]
)
async def test_what_always_won_wins_only_where_it_is_asked_for(task, answer, kept_processes):
    (entry,) = json_rows(task, size=1)
    for hardened in (True, False):
        async with Harness(ReasoningGym, {"hardened": hardened}, processes=kept_processes) as env:
            verdict = await env.verify({**prompt("Go."), **entry}, reply(f"<answer>{answer}</answer>"))
        assert verdict.reward == float(not hardened)


@pytest.mark.parametrize(
    ("answer", "expected", "reward"),
    [
        ("0.0312", "0.03125", 1.0),
        ("1/32", "0.03125", 1.0),
        ("0.03", "0.03125", 0.0),
        ("0", "0.0000305", 0.0),
        ("3.05e-5", "0.000030517", 1.0),
        ("heads", "0.5", 0.0),
        ("1/0", "0.5", 0.0),
    ],
)
def test_a_probability_is_right_or_wrong(answer, expected, reward):
    assert score("coin_flip", answer, {"question": "", "answer": expected, "metadata": {}}) == reward


@pytest.mark.parametrize(("answer", "reward"), [("False", 1.0), ("false.", 1.0), ("True", 0.0), ("not true", 0.0)])
def test_a_game_halts_or_does_not(answer, reward):
    assert score("game_of_life_halting", answer, {"question": "", "answer": "False", "metadata": {}}) == reward


@pytest.mark.parametrize("answer", ["NaN", "[1, Infinity]"])
def test_an_answer_may_name_what_the_expected_one_names(answer):
    assert score("codeio", answer, {"question": "", "answer": answer, "metadata": {}}) == 1.0
