import pytest
from gymq.workers.resources.math_formal_lean.program import build_program, find_code, find_proof


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("```lean4\nrfl\n```", "rfl"),
        ("```lean4 rfl```", "rfl"),
        ("```lean4\n\n  simp\n  rfl\n```", "  simp\n  rfl"),
        ("```lean\none\n```\n```lean4\ntwo\n```\n```lean\nthree\n```", "two"),
        ("```python\none\n```\n```\ntwo\n```", "two"),
        ("```\none\n```\n```python\ntwo\n```", "python\ntwo"),
        ("Here:\n```lean4\nrfl", "Here:\n```lean4\nrfl"),
        ("```lean4\nrfl", "rfl"),
        ("```lean4\n```", ""),
        ("  rfl\n", "rfl"),
    ],
)
def test_where_the_code_is(reply, code):
    assert find_code(reply, "last") == code


def test_the_first_block_counts_if_it_is_asked_for():
    assert find_code("```lean4\none\n```\n```lean4\ntwo\n```", "first") == "one"


@pytest.mark.parametrize(
    ("code", "proof"),
    [
        ("theorem t : p := by\n  a\n  b", "  a\n  b"),
        ("theorem t : p := by a", "a"),
        ("theorem t : p :=\n  by\n    a", "    a"),
        ("theorem t : p :=\n\n  by a", "a"),
        ("theorem t : p\n    (h : q) :=\n  rfl", "  rfl"),
        ("theorem t : p :=\n\n  rfl", "\n  rfl"),
        ("theorem t : p := rfl", "rfl"),
        ("theorem t : p := by_contra", "by_contra"),
        ("import X\nlemma l : q := by\n  c\n  example : p := by\n  a", "  a"),
        ("theorem helper : q := by\n  c\ntheorem t : p := by\n  a", "  c\ntheorem t : p := by\n  a"),
        ("lemma t : p := by\n  a", "lemma t : p := by\n  a"),
        ("theorem t : p", "theorem t : p"),
        ("theoremlike := by\n  a", "theoremlike := by\n  a"),
        ("theorem t : p :=", ""),
        ("theorem t : p := by", ""),
        ("", ""),
    ],
)
def test_what_the_proof_of_a_theorem_is(code, proof):
    assert find_proof(code) == proof


@pytest.mark.parametrize(
    ("code", "proof"),
    [
        # The tactics below begin to the left of the first: it is put above them.
        ("theorem t : p := by a\n  b", "  a\n  b"),
        # They begin in its column: all stay.
        ("theorem t : p := by a\n                    b", "                    a\n                    b"),
        # What is below belongs to the first tactic, and must stay to its right.
        (
            "theorem t : p := by exact a\n                      b",
            "                    exact a\n                      b",
        ),
        ("theorem t : p := by a\n\n  b", "  a\n\n  b"),
    ],
)
def test_tactics_behind_by_stay_in_a_column_with_those_below(code, proof):
    assert find_proof(code) == proof


def test_a_program_is_header_statement_and_proof():
    reply = "```lean4\ntheorem t : p := by\n  a\n```"
    build = build_program(reply, "import X\n\n", "theorem t : p := by\n", "last", strip_theorem=True)
    assert build == "import X\n\ntheorem t : p := by\n  a"


def test_a_reply_may_be_the_whole_theorem():
    reply = "```lean4\ntheorem t : p := by\n  a\n```"
    assert build_program(reply, "import X\n", "", "last", strip_theorem=False) == "import X\ntheorem t : p := by\n  a"
