"""Whether a list of events is the expected calendar."""

from __future__ import annotations

import json
import math
from typing import Any


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
