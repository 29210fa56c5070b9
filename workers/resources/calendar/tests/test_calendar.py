"""What the recorded cases cannot say: hostile lists get a verdict in linear time, times and constraints one by one."""

import json
from typing import Any

import pytest
from gymq.workers.resources.calendar.worker import Calendar, check_schedule, find_event_list, minutes

import gymq
from gymq.testing import Harness, prompt, reply

EXPECTED = {"0": {"event_id": 0, "duration": 60, "constraint": None, "min_time": "10:00", "max_time": "16:00"}}


def event(event_id: Any = 0, start: Any = "11:00", duration: Any = 60, **members: Any) -> dict[str, Any]:
    return {"event_id": event_id, "start_time": start, "duration": duration, **members}


async def verdict_on(text: str, expected: dict[str, Any] = EXPECTED) -> gymq.Verdict:
    async with Harness(Calendar) as env:
        return await env.verify({**prompt("Add it."), "exp_cal_state": expected}, reply(text))


@pytest.mark.parametrize(
    "text",
    [
        "[" + json.dumps(event()) * 2_000,
        "[" + "{}, " * 10_000,
        "[" * 10_000,
        "[{" * 10_000,
        "[{}" * 10_000,
        "[" + "{" * 10_000,
        "[" + "{" * 10_000 + "}" * 10_000,
        "[" + "}" * 10_000,
        "[" + '{"a": ' * 10_000 + "1" + "}" * 10_000 + "]",
    ],
    ids=lambda text: text[:10],
)
def test_lists_that_never_close_or_nest_deeply_are_read_once(text):
    assert find_event_list(text) is None


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ('[note] [{"a": 1}]', [{"a": 1}]),
        ('[1, 2] [{"a": 1}]', [{"a": 1}]),
        ('{"calendar": [{"a": 1}]}', [{"a": 1}]),
        ('```json\n[{"a": 1}]\n```', [{"a": 1}]),
        ('[{"a": 1}] [{"a": 2}]', [{"a": 1}]),
        ('[{"n": "[x] y"}]', None),
        ('[{"n": "[x] y"}, {"a": 1}]', [{"n": "[x] y"}, {"a": 1}]),
        ('[{"a": 1}, {"n": "[x] y"}]', [{"a": 1}, {"n": "[x] y"}]),
        ('[{"a": [1]}]', None),
        ('[{"a": {"b": "[x]"}}]', None),
        ('[{"a": {"b": [1]}, "c": 2}]', None),
        ('[{"a": {"b": "[x]"}, "c": {"d": 1}}]', [{"a": {"b": "[x]"}, "c": {"d": 1}}]),
        ('[{"a": {"b": "x"}}]', [{"a": {"b": "x"}}]),
        ('[{"a": 1},]', None),
        ("[{'a': 1}]", None),
        ('[{"a": 1}', None),
        ("[]", None),
        ("", None),
        ('[{"a": NaN}]', [{"a": pytest.approx(float("nan"), nan_ok=True)}]),
        ('[{"a": ' + "9" * 5_000 + "}]", None),
    ],
)
def test_which_list_is_the_calendar(text, events):
    assert find_event_list(text) == events


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("9am", 540),
        (" 9 am ", 540),
        ("12am", 0),
        ("12pm", 720),
        ("12:30am", 30),
        ("2:15pm", 855),
        ("14:05", 845),
        ("10:75", 675),
        ("25:00", 1500),
    ],
)
def test_times_are_minutes_after_midnight(time, expected):
    assert minutes(time) == expected


@pytest.mark.parametrize("time", ["9AM", "9", "", "am", "10:00:00", "9.30", "10:", "noon", "1:2:3pm"])
def test_what_is_no_time_cannot_be_graded(time):
    assert check_schedule([event(start=time)], EXPECTED) == "error_in_grading"


@pytest.mark.parametrize(
    ("constraint", "start", "met"),
    [
        ("before 12pm", "11:00", True),
        ("before 12pm", "11:01", False),
        ("after 11am", "11:00", True),
        ("after 11am", "10:59", False),
        ("between 11am and 1pm", "12:00", True),
        ("between 11am and 1pm", "12:01", False),
        ("between 11am and 1pm", "10:59", False),
        ("at 11am", "11:00", True),
        ("at 11am", "11:01", False),
        ("before", "11:00", True),
        ("whenever", "11:00", True),
        (None, "11:00", True),
    ],
)
def test_constraints(constraint, start, met):
    expected = {"0": EXPECTED["0"] | {"constraint": constraint}}
    assert check_schedule([event(start=start)], expected) == ("pass" if met else "constraint_violated")


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([event(), event(1)], "different_number_of_events"),
        ([event("0")], "pass"),
        ([event(0.0)], "error_in_grading"),
        ([event(7)], "error_in_grading"),
        ([event(duration=60.0)], "pass"),
        ([event(duration="60")], "error_in_grading"),
        ([event(duration=30)], "constraint_violated"),
        ([event(start="09:59")], "constraint_violated"),
        ([event(start="15:01")], "constraint_violated"),
        ([event(start="noon")], "error_in_grading"),
        ([event(start=None)], "error_in_grading"),
        ([event(start="9" * 400 + ":00", duration=60.5)], "error_in_grading"),
        ([event(), event()], "pass"),
        ([event(), event(duration=60.0)], "pass"),
        ([event(name="a"), event(name="b")], "conflicting_events"),
        ([event(start="10:00", duration=30), event()], "pass"),
        (["{}"], "error_in_grading"),
        ([[]], "error_in_grading"),
        ([{}], "error_in_grading"),
    ],
)
def test_events(events, reason):
    assert check_schedule(events, EXPECTED) == reason


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        ([("10:00", 60), ("11:00", 60)], "pass"),
        ([("10:00", 61), ("11:00", 60)], "conflicting_events"),
        ([("10:00", 240), ("11:00", 30)], "conflicting_events"),
        ([("11:00", 0), ("11:00", 60)], "pass"),
        ([("11:00", 0), ("10:00", 120)], "conflicting_events"),
    ],
)
def test_overlaps(spans, reason):
    events = [event(number, start, duration) for number, (start, duration) in enumerate(spans)]
    expected = {str(one["event_id"]): EXPECTED["0"] | {"duration": one["duration"]} for one in events}
    assert check_schedule(events, expected) == reason


def test_thousands_of_copies_of_an_event_are_compared_once():
    assert check_schedule([event()] * 10_000, EXPECTED) == "pass"


@pytest.mark.parametrize("expectation", [None, 1, {}, {"duration": 60}, EXPECTED["0"] | {"constraint": 11}])
async def test_an_expectation_that_cannot_be_read_scores_0(expectation):
    verdict = await verdict_on(json.dumps([event()]), {"0": expectation})
    assert (verdict.reward, verdict.fields) == (0.0, {"reason": "error_in_grading"})


async def test_only_the_first_part_of_the_last_message_counts():
    message = reply("x")["output"][0]
    calendar = {"type": "output_text", "text": json.dumps([event()]), "annotations": []}
    other = {"type": "output_text", "text": "Done.", "annotations": []}
    row = {**prompt("Add it."), "exp_cal_state": EXPECTED}
    async with Harness(Calendar) as env:
        first = await env.verify(row, reply({**message, "content": [calendar, other]}))
        second = await env.verify(row, reply({**message, "content": [other, calendar]}))
        earlier = await env.verify(row, reply(json.dumps([event()]), "Done."))
    assert [verdict.reward for verdict in (first, second, earlier)] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "content", [[], [{"type": "refusal", "refusal": "No."}], [{"type": "output_text", "text": ""}]]
)
async def test_a_reply_without_a_text_scores_0_even_if_nothing_is_expected(content):
    message = {**reply("x")["output"][0], "content": content}
    async with Harness(Calendar) as env:
        verdict = await env.verify({**prompt("Hello."), "exp_cal_state": {}}, reply(message))
    assert (verdict.reward, verdict.fields) == (0.0, {"reason": "no_text"})
