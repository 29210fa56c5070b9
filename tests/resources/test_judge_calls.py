"""The calls of judges in a verification."""

import pytest

from gymq.resources import judge_calls
from gymq.resources.judge_calls import JudgeCalls, recorded_calls, recording
from gymq.testing import reply


def test_texts_are_kept_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_calls, "MAX_VERDICT_CHARS", 250)
    calls = JudgeCalls()
    for _ in range(2):
        calls.add("judge", {"input": "x" * 100}, reply("a"), 0.5)
    first, second = calls.fields()["judge_calls"]
    assert first["request"]["input"] == [{"role": "user", "content": "x" * 100}]
    assert second["texts_left_out"]


@pytest.mark.parametrize(("text", "label"), [("x" * 80, "x" * 80), ("x" * 81, None)])
def test_a_long_text_is_no_label(text: str, label: str | None) -> None:
    calls, response = JudgeCalls(), reply("a")
    calls.add("judge", {"input": "?"}, response, 0.5)
    calls.label(response, text)
    assert calls.fields()["judge_calls"][0]["label"] == label


def test_after_a_verification_nothing_is_recorded() -> None:
    with recording() as calls:
        assert recorded_calls.get() is calls
    assert recorded_calls.get() is None
