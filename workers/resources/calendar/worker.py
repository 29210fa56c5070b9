"""calendar: the assistant keeps a calendar under time constraints; the JSON list it prints last is checked."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

import gymq
from gymq.responses import first_text_of_last_item

_BRACKET = re.compile(r"[\[\]{}]")


class _Ends(NamedTuple):
    """Where in the text a list ends that continues here, by what it has seen of the group without square brackets."""

    before_group: int | None = None
    in_group: int | None = None
    after_group: int | None = None


SHORT_CHARACTERS = 16_384  # a longer text is read in a process, and the event loop is free meanwhile


class CalendarRow(gymq.Row):
    exp_cal_state: dict[str, Any]  # event id -> expectation


class Calendar(gymq.Resources[CalendarRow]):
    """Reward 1 if the calendar holds the expected events, none overlaps and every constraint is met."""

    reward_range = (0.0, 1.0)

    async def verify(self, request: gymq.VerifyRequest[CalendarRow]) -> gymq.Verdict:
        text, expected = first_text_of_last_item(request.response), request.row.exp_cal_state
        if len(text) <= SHORT_CHARACTERS:
            reason = judge(text, expected)
        else:
            reason = await self.processes.run(self.verify_timeout_s, judge, text, expected)
        return gymq.Verdict(float(reason == "pass"), reason=reason)


def judge(text: str, expected: dict[str, Any]) -> str:
    """Return one word for the error in the reply; `pass` if it has none."""
    if not text:
        return "no_text"
    if "<think>" in text:
        return "think_found"
    if not expected:
        return "pass"
    events = find_event_list(text)
    if events is None:
        return "no_json_list"
    return check_schedule(events, expected)


def find_event_list(text: str) -> list[Any] | None:
    """Return the first list of objects in the text; None if there is none, or it is not JSON.

    A list is a `[`, then anything but square brackets, then `]`. A brace group, from an opening brace to the next
    closing one, may hold square brackets, but there has to be one that holds none. Takes linear time.
    """
    stretch = _first_list(text)
    try:
        return None if stretch is None else json.loads(stretch)
    except (ValueError, RecursionError):
        return None


def _first_list(text: str) -> str | None:
    """Return the first stretch that has the form of a list of objects.

    It goes from the end of the text to its beginning and notes for each bracket where a list ends that continues there.
    A `{` can be read in three ways: as a plain character, as the start of a brace group, or as the start of the group
    that the list needs. The first that leads to an end counts, as in a regular expression that tries one after the
    other.
    """
    brackets = list(_BRACKET.finditer(text))
    ends: list[_Ends] = [_Ends()] * (len(brackets) + 1)
    after_group: int | None = None  # the place after the next closing brace
    first = None
    for place in range(len(brackets) - 1, -1, -1):
        follows = ends[place + 1]
        match brackets[place][0]:
            case "[":
                first = place if follows.before_group is not None else first
            case "]":
                ends[place] = _Ends(after_group=brackets[place].end())
            case "}":
                inside = follows.after_group if follows.in_group is None else follows.in_group
                ends[place] = _Ends(follows.before_group, inside, follows.after_group)
                after_group = place + 1
            case "{":
                group = _Ends() if after_group is None else ends[after_group]
                ends[place] = _Ends(
                    _first_of(follows.before_group, group.before_group, follows.in_group),
                    follows.in_group,
                    _first_of(follows.after_group, group.after_group),
                )
    return None if first is None else text[brackets[first].start() : ends[first + 1].before_group]


def _first_of(*ends: int | None) -> int | None:
    return next((end for end in ends if end is not None), None)


def check_schedule(events: list[Any], expected: dict[str, Any]) -> str:
    """Return one word for the first thing that is wrong with the events; `pass` if nothing is.

    Whatever cannot be read, in the events or in the expectation, is `error_in_grading`.
    """
    try:
        by_id = {str(event["event_id"]): event for event in events}
        if len(by_id) != len(expected):
            return "different_number_of_events"
        if _some_overlap(events):
            return "conflicting_events"
        if not all(_meets(by_id[event_id], expectation) for event_id, expectation in expected.items()):
            return "constraint_violated"
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return "error_in_grading"
    return "pass"


def minutes(time: str) -> int:
    """Minutes after midnight of `9am`, `12:30 pm` or `14:05`. Whether there is such a time of day is not checked.

    Raises:
        ValueError: it is not a time.
    """
    time = time.strip()
    half = next((half for half in ("am", "pm") if half in time), None)
    if half is None:
        hour, minute = map(int, time.split(":"))
        return hour * 60 + minute
    time = time.replace(half, "")
    hour, minute = map(int, time.split(":")) if ":" in time else (int(time), 0)
    return (0 if hour == 12 else hour) * 60 + minute + (720 if half == "pm" else 0)


def _span(event: dict[str, Any]) -> tuple[int, float]:
    start = minutes(event["start_time"])
    end = start + event["duration"]
    if end != end:
        raise ValueError("a duration that is NaN has no end")
    return start, end


def _some_overlap(events: list[dict[str, Any]]) -> bool:
    """Return whether two events that differ in some field overlap."""
    distinct = {json.dumps(_same_if_equal(event), sort_keys=True): event for event in events}.values()
    spans = sorted(map(_span, distinct))
    for place, (_, end) in enumerate(spans):
        for other in range(place + 1, len(spans)):
            other_start, other_end = spans[other]
            if other_start >= end:
                break
            if other_end > spans[place][0]:
                return True
    return False


def _same_if_equal(value: Any) -> Any:
    """Return the value in a form whose JSON is the same for all that are equal to it: 60 for 60.0, 1 for true."""
    if isinstance(value, dict):
        return {key: _same_if_equal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_same_if_equal(item) for item in value]
    return int(value) if isinstance(value, (bool, float)) and math.isfinite(value) and value == int(value) else value


def _meets(event: dict[str, Any], expectation: dict[str, Any]) -> bool:
    if event["duration"] != expectation["duration"]:
        return False
    start, end = _span(event)
    if start < minutes(expectation["min_time"]) or end > minutes(expectation["max_time"]):
        return False
    constraint = expectation["constraint"]
    return constraint is None or _satisfies(constraint, start, end)


def _satisfies(constraint: str, start: float, end: float) -> bool:
    """Accept a kind of constraint that is not known."""
    kind, blank, times = constraint.partition(" ")
    match kind + blank:
        case "before ":
            return end <= minutes(times)
        case "after ":
            return start >= minutes(times)
        case "between ":
            earliest, latest = map(minutes, times.split(" and "))
            return start >= earliest and end <= latest
        case "at ":
            return start == minutes(times)
    return True
