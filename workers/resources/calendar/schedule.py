"""Whether a list of events is the expected calendar."""

from __future__ import annotations

import json
from typing import Any


def check_schedule(events: list[Any], expected: dict[str, Any]) -> str:
    """One word for the first thing that is wrong with the events; `pass` if nothing is.

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
        ValueError: it is no time.
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
    return start, start + event["duration"]


def _some_overlap(events: list[dict[str, Any]]) -> bool:
    """Whether two events that differ in some member overlap."""
    distinct = {json.dumps(event, sort_keys=True): event for event in events}.values()
    spans = sorted(((*_span(event), event) for event in distinct), key=lambda span: span[:2])
    for place, (start, end, event) in enumerate(spans):
        for other in range(place + 1, len(spans)):
            other_start, other_end, other_event = spans[other]
            if other_start >= end:
                break
            if other_end > start and event != other_event:
                return True
    return False


def _meets(event: dict[str, Any], expectation: dict[str, Any]) -> bool:
    if event["duration"] != expectation["duration"]:
        return False
    start, end = _span(event)
    if start < minutes(expectation["min_time"]) or end > minutes(expectation["max_time"]):
        return False
    constraint = expectation["constraint"]
    return constraint is None or _satisfies(constraint, start, end)


def _satisfies(constraint: str, start: float, end: float) -> bool:
    """A kind of constraint that we do not know is satisfied."""
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
