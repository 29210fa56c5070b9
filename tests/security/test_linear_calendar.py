"""calendar reads hostile replies with an effort that grows with their length, long ones outside of the event loop."""

import json

import pytest
from gymq.workers.resources.calendar import worker
from gymq.workers.resources.calendar.worker import Calendar, check_schedule, find_event_list

from gymq.testing import Harness, prompt, reply
from tests.security.effort import FOURFOLD, growth

EXPECTED = {"0": {"event_id": 0, "duration": 60, "constraint": None, "min_time": "10:00", "max_time": "16:00"}}


@pytest.mark.parametrize("part", ["[", "{", "[{", "[{}", "{}", "[[x]{}", "[{}{", "}", "]"])
def test_a_list_is_looked_for_once(part):
    assert growth(find_event_list, lambda n: "[" + part * n, 500) < FOURFOLD


def _checked(text: str) -> str:
    return check_schedule(json.loads(text), EXPECTED)


def _nothing_but(duration: str) -> str:
    return f'{{"event_id": 0, "start_time": "11:00", "duration": {duration}, "name": NUMBER}}'


def _list_of(number: int) -> str:
    return f"[{', '.join(('1', '1.0', 'true')[number // 3**place % 3] for place in range(8))}]"


def _equal_in_many_ways(n: int) -> str:
    """Events that are all equal and all written in another way: one, one as a float, true."""
    events = [f'{{"event_id": 0, "start_time": "11:00", "duration": 60, "a": {_list_of(i)}}}' for i in range(n)]
    return f"[{', '.join(events)}]"


@pytest.mark.parametrize(
    "text_of",
    [
        lambda n: f"[{', '.join(_nothing_but('NaN').replace('NUMBER', str(i)) for i in range(n))}]",
        lambda n: f"[{', '.join(_nothing_but('-90').replace('NUMBER', str(i)) for i in range(n))}]",
        lambda n: f"[{', '.join(_nothing_but('0').replace('NUMBER', str(i)) for i in range(n))}]",
        _equal_in_many_ways,
    ],
)
def test_events_are_compared_with_few_others(text_of):
    assert growth(_checked, text_of, 200) < FOURFOLD


async def test_a_long_reply_is_read_in_another_process(monkeypatch):
    calls = []

    async def run(_timeout_s, function, *arguments):
        calls.append(function)
        return function(*arguments)

    row = {**prompt("Add it."), "exp_cal_state": EXPECTED}
    async with Harness(Calendar) as env:
        monkeypatch.setattr(env.author.processes, "run", run)
        assert (await env.verify(row, reply("[" * 200_000))).reward == 0.0
        assert calls == [worker.judge]
        assert (await env.verify(row, reply("[" * 200))).reward == 0.0
        assert len(calls) == 1


async def test_what_the_process_says_is_the_verdict():
    event = {"event_id": 0, "start_time": "11:00", "duration": 60}
    row = {**prompt("Add it."), "exp_cal_state": EXPECTED}
    async with Harness(Calendar) as env:
        verdict = await env.verify(row, reply("x" * 20_000 + json.dumps([event])))
    assert (verdict.reward, verdict.fields) == (1.0, {"reason": "pass"})
