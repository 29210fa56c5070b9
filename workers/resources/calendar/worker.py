"""calendar: the assistant keeps a calendar under time constraints; the JSON list it prints last is checked."""

from __future__ import annotations

from typing import Any

from gymq.workers.resources.calendar.extraction import find_event_list
from gymq.workers.resources.calendar.schedule import check_schedule

import gymq
from gymq.responses import first_text_of_last_item

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
