from gymq.workers.resources.math_formal_lean.compiler import CompilerOutput
from gymq.workers.resources.math_formal_lean.feedback import NOTHING_SAID, TOO_SLOW, feedback

PROGRAM = "\n".join(f"  line_{number} here" for number in range(1, 10))


def feedback_on(stderr="", stdout="", status="failed"):
    return feedback(CompilerOutput(status, stdout, stderr), PROGRAM)


def test_an_error_is_shown_at_its_place():
    assert feedback_on("/tmp/t.lean:6:9: error: unsolved goals\n⊢ False\n") == (
        "Error 1, line 6, column 9:\n```lean4\n  line_2 here\n  line_3 here\n  line_4 here\n  line_5 here\n"
        "  line_6 here\n         ^^^^\n  line_7 here\n```\nunsolved goals\n⊢ False"
    )


def test_an_error_in_the_first_and_in_the_last_line_has_what_context_there_is():
    text = feedback_on("t.lean:1:0: error: one\nt.lean:9:0: error: two\n")
    assert "```lean4\n  line_1 here\n^^^^^^^^^^^^^\n  line_2 here\n```\none" in text
    assert text.endswith("  line_9 here\n^^^^^^^^^^^^^\n```\ntwo")


def test_a_warning_ends_the_error_before_it_and_is_not_shown():
    text = feedback_on("t.lean:2:0: error(lean.name): one\nt.lean:3:0: warning: two\nmore\nt.lean:4:0: error: three")
    assert text.count("```lean4") == 2
    assert "two" not in text
    assert "more" not in text


def test_errors_on_standard_output_count_if_there_are_none_on_the_other():
    text = feedback_on(stdout="t.lean:2:0: error: one")
    assert "  line_2 here\n^^^^^^^^^^^^^" in text
    assert text.endswith("The compiler printed:\nt.lean:2:0: error: one")
    text = feedback_on("t.lean:2:0: error: one", stdout="t.lean:3:0: error: two")
    assert "one" in text
    assert "two" not in text


def test_eight_errors_are_shown_and_the_others_counted():
    text = feedback_on("\n".join(f"t.lean:2:0: error: number {number}" for number in range(11)))
    assert text.count("```lean4") == 8
    assert text.endswith("... and 3 more errors.")


def test_errors_outside_of_the_program_are_left_out():
    text = feedback_on("t.lean:2:0: error: one\nt.lean:99:0: error: two\nt.lean:0:0: error: three")
    assert "one" in text
    assert "two" not in text
    assert "three" not in text


def test_without_errors_the_output_is_shown_and_cut():
    assert feedback_on("bad\n", "first\n") == "The compiler printed:\nfirst\n\nbad\n"
    text = feedback_on("x" * 2001)
    assert text.endswith("x\n... (cut)")
    assert text.count("x") == 2000


def test_a_time_limit_is_said_plainly():
    assert feedback_on("t.lean:2:0: error: one", status="timeout") == TOO_SLOW


def test_no_output_at_all_is_said_too():
    assert feedback_on(" \n") == NOTHING_SAID
