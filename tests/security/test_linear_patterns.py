"""No regular expression of ours needs time in proportion to the square of a text's length, or worse."""

import pytest

from gymq.ext.conversion.from_chat import split_think_blocks
from tests.security.effort import FOURFOLD, growth
from tests.security.patterns import hostile_text, uses_in_code

# Files with patterns that are only known when the code runs, and why those are safe.
IN_A_PROCESS = "it runs in a process that is ended when its processor time is used up"
CONFIGURATION = "it reads configuration, which the user of gymq writes"
PARTS_OF_OURS = "put together from names of ours, and anchored or without a repeat that could begin in many places"
KNOWN_LATER = {
    "gymq/ext/nemo_gym/rollouts.py": PARTS_OF_OURS,
    "gymq/ext/viewer/formulas.py": PARTS_OF_OURS,
    "gymq/config/sources.py": PARTS_OF_OURS,
    "gymq/config/values.py": CONFIGURATION,
    "gymq/judge/prompts.py": "the tags of a template, as they are",
    "gymq/judge/reading.py": "the labels of judges, which workers name: a word and a verdict",
    "gymq/ext/text/words.py": "an expected answer, which the row names, between single signs",
    "workers/models/openai_model/overflow.py": PARTS_OF_OURS,
    "workers/resources/equivalence_llm_judge/worker.py": IN_A_PROCESS,
    "workers/resources/format_verification/worker.py": IN_A_PROCESS,
    "workers/resources/ifbench/custom.py": IN_A_PROCESS,
    "workers/resources/instruction_following/as_meant.py": IN_A_PROCESS,
    "workers/resources/instruction_following/copies.py": IN_A_PROCESS,
    "workers/resources/instruction_following/formats.py": IN_A_PROCESS,
    "workers/resources/instruction_following/keywords.py": IN_A_PROCESS,
    "workers/resources/instruction_following/texts.py": IN_A_PROCESS,
    "workers/resources/math_formal_lean/finish.py": PARTS_OF_OURS,
    "workers/resources/mcqa/rules.py": IN_A_PROCESS,
    "workers/resources/newton_bench/submission.py": PARTS_OF_OURS,
    "workers/resources/string_match/comparison.py": PARTS_OF_OURS,
    "workers/resources/string_match/measures.py": PARTS_OF_OURS,
    "workers/resources/structured_outputs/patterns.py": IN_A_PROCESS,
    "workers/resources/workplace_assistant/records.py": IN_A_PROCESS,
}
USES = uses_in_code()


@pytest.mark.parametrize("file", sorted({use.file for use in USES}))
def test_the_patterns_of_a_file_are_linear(file):
    for use in USES:
        if use.file != file:
            continue
        place = f"{use.file}:{use.line}: {use.source}"
        if use.pattern is None:
            assert file in KNOWN_LATER, (
                f"{place}: cannot be looked at; name the file in KNOWN_LATER, and why it is safe"
            )
            continue
        slow = hostile_text(use.pattern, use.flags, use.methods)
        assert slow is None, f"{place}: more than linear on {slow}"


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"(a+)+$", "match"),
        (r"(a|a)*b", "match"),
        (r"\d+x?\d+y", "match"),
        (r"\s*\[\s*\d+%\]\s*$", "sub"),
        (r"(.*?)\[(.*)\]", "fullmatch"),
        (r"(?s)<think>(.*?)</think>", "findall"),
        (r"```python\n([\s\S]*?)\n```", "findall"),
        (r"```.*?\n### (.*)\n\s*<<<<<<< SEARCH\n([\s\S]*?)\n=======\n", "findall"),
        (r"\[[^\]]*\]", "search"),
    ],
)
def test_patterns_that_are_worse_than_linear_are_found(pattern, method):
    assert hostile_text(pattern, 0, frozenset({method})) is not None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"a*b", "match"),
        (r"[a-z]+", "finditer"),
        (r"\[[^\[\]]*\]", "search"),
        (r"(?s)```(.*?)```", "findall"),
        (r"(?m)^-++[ \t]*+$", "search"),
        (r'"(?:[^"\\]|\\.)*"', "match"),
    ],
)
def test_patterns_that_are_linear_pass(pattern, method):
    assert hostile_text(pattern, 0, frozenset({method})) is None


@pytest.mark.parametrize("part", ["<think>", "<think>a</think>", "</think>"])
def test_think_blocks_are_found_in_one_pass(part):
    assert growth(split_think_blocks, lambda n: part * n, 500) < FOURFOLD


@pytest.mark.parametrize(
    ("text", "thoughts", "rest"),
    [
        ("<think>a</think>b", ["a"], "b"),
        ("x<think>a<think>b</think>c</think>", ["a<think>b"], "xc</think>"),
        ("<think>a", [], "<think>a"),
        ("<think></think><think>\nb</think>", ["", "\nb"], ""),
        ("</think>a<think>", [], "</think>a<think>"),
    ],
)
def test_think_blocks(text, thoughts, rest):
    assert split_think_blocks(text) == (thoughts, rest)


def test_thoughts_without_end_are_looked_for_once():
    assert split_think_blocks("<think>" * 1_000_000) == ([], "<think>" * 1_000_000)
