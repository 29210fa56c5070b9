"""Tools of the calendar."""

from __future__ import annotations

import re
from typing import Any

from gymq.workers.resources.workplace_assistant.dates import is_time, parse_time
from gymq.workers.resources.workplace_assistant.records import (
    PAGE_SIZE,
    Matcher,
    added,
    choices,
    deleted,
    field_of,
    find,
    matching_rows,
    page_of,
    updated,
)
from gymq.workers.resources.workplace_assistant.tables import EVENT_COLUMNS, Row, Tables, Tool

BAD_ID = "Invalid event ID format. Expected 8-digit ID."
NOT_FOUND = "Event not found."
BAD_START = "Invalid event start. Expected a time such as 2023-12-01 09:30:00."
BAD_DURATION = "Invalid duration. Expected a positive whole number of minutes."

_FIELDS = EVENT_COLUMNS[1:]


def get_event_information_by_id(tables: Tables, /, event_id: Any = None, field: Any = None) -> Row | str:
    if event_id and field and not _is_id(event_id):
        return BAD_ID
    return field_of(tables.events, "event_id", event_id, field, "Event")


async def search_events(
    tables: Tables,
    matcher: Matcher,
    /,
    query: str = "",
    time_min: str | None = None,
    time_max: str | None = None,
    page: int = 1,
    page_size: int = PAGE_SIZE,
) -> Row | str:
    found = await matching_rows(tables.events, ("event_name", "participant_email"), query, matcher)
    if time_min:
        first = parse_time(time_min)
        found = [event for event in found if parse_time(event["event_start"]) >= first]
    if time_max:
        last = parse_time(time_max)
        found = [event for event in found if parse_time(event["event_start"]) <= last]
    found.sort(key=lambda event: parse_time(event["event_start"]), reverse=True)
    return page_of("events", found, page, page_size) if found else "No events found."


def create_event(
    tables: Tables,
    /,
    event_name: Any = None,
    participant_email: Any = None,
    event_start: Any = None,
    duration: Any = None,
) -> str:
    if not event_name:
        return "Event name not provided."
    if not participant_email:
        return "Participant email not provided."
    if not event_start:
        return "Event start not provided."
    if not duration:
        return "Event duration not provided."
    if not is_time(event_start):
        return BAD_START
    if not _is_duration(duration):
        return BAD_DURATION
    event = {
        "event_name": event_name,
        "participant_email": participant_email.lower(),
        "event_start": event_start,
        "duration": duration,
    }
    tables.events, event_id = added(tables.events, "event_id", event)
    return event_id


def delete_event(tables: Tables, /, event_id: Any = None) -> str:
    if event_id and not _is_id(event_id):
        return BAD_ID
    tables.events, answer = deleted(tables.events, "event_id", event_id, "Event")
    return answer


def update_event(tables: Tables, /, event_id: Any = None, field: Any = None, new_value: Any = None) -> str:
    if not event_id or not field or not new_value:
        return "Event ID, field, or new value not provided."
    if not _is_id(event_id):
        return BAD_ID
    if field not in _FIELDS:
        return f"Field not valid. Please choose from: {choices(_FIELDS)}."
    if field == "event_start" and not is_time(new_value):
        return BAD_START
    if field == "duration" and not _is_duration(new_value):
        return BAD_DURATION
    if field == "participant_email":
        new_value = new_value.lower()
    if find(tables.events, "event_id", event_id) is None:
        return NOT_FOUND
    tables.events = updated(tables.events, "event_id", event_id, {field: new_value})
    return "Event updated successfully."


def _is_id(event_id: Any) -> bool:
    return isinstance(event_id, str) and re.fullmatch("[0-9]{8}", event_id) is not None


def _is_duration(minutes: Any) -> bool:
    try:
        return int(minutes) > 0
    except (TypeError, ValueError, OverflowError):
        return False


READING: dict[str, Tool] = {"calendar_get_event_information_by_id": get_event_information_by_id}
SEARCHING: dict[str, Tool] = {"calendar_search_events": search_events}
CHANGING: dict[str, Tool] = {
    "calendar_create_event": create_event,
    "calendar_delete_event": delete_event,
    "calendar_update_event": update_event,
}
