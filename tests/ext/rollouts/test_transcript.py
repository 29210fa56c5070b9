"""What stands at the head of a rollout that is read whole."""

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from gymq.ext.rollouts.transcript import print_transcript
from gymq.protocol.messages import VerifiedRollout
from gymq.testing import reply


@pytest.mark.parametrize(
    ("versions", "shown"), [(["v1"], "v1"), (["", "v1", "v2"], "(as started), v1, v2"), (["\x1b[2J"], "<1b>[2J")]
)
def test_a_transcript_names_the_policies(versions: list[str], shown: str) -> None:
    rollout = VerifiedRollout(
        run="r",
        task_index=0,
        rollout_index=0,
        agent="a",
        row=b'{"responses_create_params": {"input": "x"}}',
        response=reply("done"),
        reward=1.0,
        policy_versions=versions,
    )
    console = Console(file=io.StringIO(), width=100)
    print_transcript(rollout, console)
    assert isinstance(console.file, io.StringIO)
    (line,) = [line for line in console.file.getvalue().splitlines() if line.startswith("policy")]
    assert line.split(maxsplit=1)[1].strip() == shown


def transcript(row: bytes, verdict: dict[str, Any], *, width: int = 100) -> str:
    rollout = VerifiedRollout(
        run="r", task_index=0, rollout_index=0, agent="a", row=row, response=reply("done"), reward=0.5, verdict=verdict
    )
    console = Console(file=io.StringIO(), width=width)
    print_transcript(rollout, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


ROW = b'{"responses_create_params": {"input": "x"}, "expected_answer": "42", "agent_ref": {"name": "a"}, "n": [1]}'


VERDICT = [("reward", "0.500"), ("library_reward", "0.5"), ("why", "half")]


def test_the_fields_of_the_row_are_shown_before_the_verdict() -> None:
    lines = [line.split() for line in transcript(ROW, {"library_reward": 0.5, "why": "half"}).splitlines()]
    expected, n = lines.index(["expected_answer", "42"]), lines.index(["n", "[1]"])
    reward, library, why = (
        lines.index(words) for words in (["reward", "0.500"], ["library_reward", "0.5"], ["why", "half"])
    )
    assert expected < n < reward < library < why
    assert ["agent_ref"] not in [line[:1] for line in lines]


def test_a_long_field_of_the_row_is_cut_and_shows_its_length() -> None:
    row = msgspec.json.encode({"responses_create_params": {"input": "x"}, "tests": "t" * 5000})
    shown = transcript(row, {})
    assert "(5,000 characters, --json has all)" in shown
    assert shown.count("t" * 90) < 30


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("request_field", ["request", "responses_create_params"])
def test_calls_of_a_judge_are_conversations(request_field: str, width: int) -> None:
    asked = {"input": [{"role": "system", "content": "You judge."}, {"role": "user", "content": "Is\n42 right?"}]}
    call = {request_field: asked, "response": reply("It is.\n[[A=B]]"), "verdict_label": "[[A=B]]"}
    out = transcript(ROW, {"judge_evaluations": [call], "library_reward": 0.0}, width=width)
    parts = [
        *("library_reward", "judge  judge_evaluations[0]", "  verdict_label: [[A=B]]", "system", "  You judge."),
        *("user", "  Is\n  42 right?", "assistant", "  It is.\n  [[A=B]]"),
    ]
    places = [out.find(part, out.find("verdict ═")) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)
    assert '"input"' not in out


def test_a_structure_of_a_verdict_is_shown_by_its_fields() -> None:
    items = [
        {"question": f"Is it {word}?", "judge_response": "Yes.\n" + "because " * 30} for word in ("short", "right")
    ]
    out = transcript(ROW, {"rubric": items, "score": 1.0, "none": None})
    for part in ("rubric[0]", "question: Is it short?", "judge_response: Yes.\n  because", "rubric[1]", "score"):
        assert part in out


def test_a_verdict_of_any_form_is_shown() -> None:
    deep: Any = "x" * 300
    for _ in range(400):
        deep = [{"request": deep, "response": None}]
    assert "x" * 60 in transcript(ROW, {"deep": deep, "request": {"input": None}, "mixed": [1, {"a": "y" * 300}]})


def test_control_characters_of_a_judge_do_not_reach_the_terminal() -> None:
    call = {"request": {"input": "\x1b[2J"}, "response": reply("\x1b[2J"), "\x1b[2J": "\x1b[2J"}
    assert "\x1b" not in transcript(ROW, {"judge": call, "\x1b[2Jdeep": {"a": "\x1b[2J" + "x" * 300}})


def test_a_prompt_that_a_program_made_is_shown_in_place_of_the_rows() -> None:
    out = transcript(ROW, {"responses_create_params": {"input": "You are a coder." + "!" * 300}, "n": 1})
    assert out.index("You are a coder.") < out.index("response ═")
    assert out.count("You are a coder.") == 1
    assert "user ─" in out


def test_the_prompt_of_a_short_row_is_shown_once() -> None:
    row = {"responses_create_params": {"input": "What is 2 + 2?"}, "question": "What is 2 + 2?", "answer": 4}
    text = transcript(msgspec.json.encode(row), {})
    assert text.count("What is 2 + 2?") == 1
    assert "question" not in text
    assert "answer" in text


def test_criteria_are_a_list_with_ticks() -> None:
    out = transcript(ROW, {"criteria": {"is polite": True, "is short \x1b[2J": False}, "accuracy": 0.5})
    lines = [line.strip() for line in out.splitlines()]
    at = next(at for at, line in enumerate(lines) if line.startswith("criteria"))
    assert lines[at].split() == ["criteria", "✓", "is", "polite"]
    assert lines[at + 1].startswith("✗ is short")
    assert "\x1b" not in out
