"""The errors and warnings of `gymq.collect`, in the words of Python."""

import traceback

import pytest

import gymq
from gymq.errors import UsageError
from gymq.runs.stored_runs import Runs

FILE = """
import gymq

class Row(gymq.Row):
    answer: str

class Letters(gymq.Resources[Row]):
    async def verify(self, request):
        return len(request.row.answer) / ANSWERS
"""
ROWS = [{"prompt": "a?", "answer": "a"}]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letters.py").write_text(FILE.replace("ANSWERS", "1"))


def test_the_simulated_model_is_named_and_a_refusal_has_the_words_of_python(capfd, monkeypatch):
    stored = []
    change = Runs.change

    async def seen(self, run, changed):
        stored.append(await change(self, run, changed))
        return stored[-1]

    monkeypatch.setattr(Runs, "change", seen)
    gymq.collect("letters.py", ROWS, repeats=2)
    assert capfd.readouterr().err.count("gymq: no model is given, so simulated_model is used\n") == 1
    gymq.collect("letters.py", ROWS, repeats=2)
    assert stored[-1].models == ["policy_model = simulated_model"]
    assert "is complete: 2 of 2; overwrite=True starts over, repeats= extends it" in capfd.readouterr().err
    with pytest.raises(UsageError) as refused:
        gymq.collect("letters.py", ROWS)
    assert "repeats changed from 2 to 1; pass overwrite=True to start over, or another output" in str(refused.value)
    assert "no running event loop" not in "".join(traceback.format_exception(refused.value))


def test_equal_rows_are_named(caplog):
    gymq.collect("letters.py", [*ROWS, {"prompt": "b?", "answer": "b"}, *ROWS], repeats=2, progress=False)
    assert "rows[0] and rows[2] are equal: one task, 4 rollouts" in caplog.messages


def test_rows_that_cannot_be_used_are_an_error_if_none_can_and_a_warning_if_some_can(caplog):
    with pytest.raises(gymq.GymqError) as refused:
        gymq.collect("letters.py", [{"ask": "a?", "answer": "a"}] * 5, progress=False)
    assert str(refused.value).splitlines() == [
        "5 of 5 rows cannot be used:",
        "rows[0], rows[1], rows[2] and 2 more: the row has no prompt: its fields are ask, answer; "
        "pass prompt_field=NAME",
    ]
    run = gymq.collect("letters.py", [{"ask": "a?", "answer": "a"}, *ROWS], prompt_field="ask", progress=False)
    assert run.statistics is not None
    assert run.statistics.rollouts == 1
    assert f"1 row cannot be used: {run.path.with_name('letters-rows_failures.jsonl')} has why" in caplog.messages


def test_rollouts_that_failed_say_why(tmp_path, caplog):
    (tmp_path / "letters.py").write_text(FILE.replace("ANSWERS", "0"))
    gymq.collect("letters.py", ROWS, progress=False)
    (why,) = [text for text in caplog.messages if "failed" in text]
    assert why.startswith("1 rollout failed with verifier_failed, for example: letters failed to verify: ZeroDivision")


def test_an_unknown_argument_names_the_function_and_the_nearest():
    with pytest.raises(TypeError, match=r"^collect\(\) got .* argument 'num_repeats'; did you mean repeats\?$"):
        gymq.collect("letters.py", ROWS, num_repeats=2)  # type: ignore[call-arg]
