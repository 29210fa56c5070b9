"""What calls wait for, from those who know it to those who show it."""

import asyncio
from typing import Any

import pytest

import gymq
from gymq.bus import Bus
from gymq.bus.discovery import ServiceListing, find_workers
from gymq.bus.jetstream import DISK_FULL
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.process_reports import (
    MAX_RUNS,
    ClusterReport,
    ModelReport,
    OpenCalls,
    ProcessReport,
    SlowestCall,
)
from gymq.bus.rpc.serving import Server
from gymq.execution.model_runner import ModelRunner
from gymq.protocol.messages import Generate, Verify
from gymq.protocol.subjects import MODEL
from gymq.testing import reply
from tests.bus.test_streams_of_messages import make_stream
from tests.support.waiting import DEADLINE_S, until, until_answer


def generate(run: str, rollout: int = 0) -> Generate:
    return Generate(rollout=f"{run}/0/{rollout}", timeout_s=30.0, params={"input": []}, session="s")


def stats(name: str = "m", process: str = "p", kind: str = "models", **data: Any) -> dict[str, Any]:
    return {"name": name, "id": process, "metadata": {"kind": kind}, "endpoints": [{"data": data}]}


def test_the_oldest_call_of_each_run_is_the_slowest():
    calls = OpenCalls()
    verify = Verify(rollout="b/0/0", timeout_s=1.0, number=1, row=b"", response={})
    first, other, last = calls.add(generate("a")), calls.add(verify), calls.add(generate("a"))
    last.waits_for = "no worker serves gym.model.m"
    first.since -= 40
    found = calls.by_run()
    assert found["a"].slowest.kind == "model call"
    assert 40 <= found["a"].slowest.seconds < 80
    assert found["a"].waits == {"no worker serves gym.model.m": 1}
    assert (found["b"].slowest.kind, found["b"].waits) == ("verification", {})
    for call in (first, other, last):
        calls.remove(call)
    assert calls.by_run() == {}


def test_calls_of_so_many_runs_are_reported_and_no_more():
    calls = OpenCalls()
    for number in range(MAX_RUNS + 1):
        calls.add(generate(f"run{number}"))
    assert list(calls.by_run()) == [f"run{number}" for number in range(MAX_RUNS)]


async def test_a_call_that_nobody_serves_is_reported_while_it_waits(bus: Bus, run: str):
    calls = Calls(bus)
    waiting = asyncio.create_task(calls.call(MODEL.of(run), generate(run)))
    await until(lambda: calls.open.by_run() and calls.open.by_run()[run].waits)
    assert calls.open.by_run()[run].waits == {f"no worker serves gym.model.{run}": 1}
    waiting.cancel()
    await asyncio.wait([waiting])
    assert calls.open.by_run() == {}


async def test_messages_that_a_full_stream_does_not_take_are_counted(bus: Bus, run: str):
    js = bus.js
    await make_stream(js, run, max_msgs=1)
    await js.store(f"{run}.x", b"")
    storing = asyncio.create_task(js.publish_with_retry(f"{run}.x", b"late", {}, patience_s=60))
    await until(lambda: bus.unstored)
    assert bus.unstored == {DISK_FULL: 1}
    await js.api(f"STREAM.MSG.DELETE.{run}", {"seq": 1})
    await asyncio.wait_for(storing, DEADLINE_S)
    assert not bus.unstored


def test_what_processes_report_is_added_up_and_counted_once_for_each_process():
    report = {
        "calls": {"r": {"slowest": {"kind": "model call", "seconds": 3.0}, "waits": {"x": 2}}},
        "storing": {"d": 1},
        "limited": {"full": 4},
        "queued": {"slots": 100},
    }
    slower = {
        "limited": {"full": 5},
        "queued": {"slots": 90},
        "calls": {
            "r": {"slowest": {"kind": "tool call", "seconds": 4.0}, "waits": {"x": 1}},
            "other": {"slowest": {"kind": "seed", "seconds": 9.0}, "waits": {"y": 1}},
        },
    }
    found = ClusterReport(
        "r",
        [
            stats("a1", "agents-1", "agents", **report),
            stats("a2", "agents-1", "agents", **report),
            stats("a1", "agents-2", "agents", **slower),
            stats("m", "p1", model={"waits": {"limited": 3}, "retries": 5}),
            stats("m", "p2", model={"waits": {"limited": 4}, "retries": 7}),
            stats("j", "p2", model={}),
        ],
    )
    assert found.agents == {"a1", "a2"}
    assert found.waits == {"x": 3, "d": 1, "limited": 7, "full": 9, "slots": 100}
    assert found.slowest == SlowestCall("tool call", 4.0)
    assert found.retries == {("p1", "m"): 5, ("p2", "m"): 7, ("p2", "j"): 0}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"name": "x", "id": "y", "metadata": {}, "endpoints": [{"data": {"model": 3}}]},
        stats(model={"waits": {"x" * 301: 1}}),
        stats(model={"waits": {"x": -1}}),
        stats(storing={"x": "many"}),
    ],
)
def test_answers_of_another_form_are_left_out(answer: dict[str, Any]):
    found = ClusterReport("r", [answer])
    assert (found.waits, found.retries) == ({}, {})


class Limited(gymq.Model):
    """Reports what the test says."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.report: Any = {"rate limited by h (429)": 8}

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        return reply("hello")

    def waits(self) -> Any:
        return self.report

    def num_retries(self) -> int:
        return 5

    def oddities(self) -> dict[str, int]:
        return {"replies with another `usage` than specified": 3}


async def test_a_model_reports_what_it_waits_for(bus: Bus, other_bus: Bus, run: str):
    server = Server(other_bus, f"{run}-w")
    await server.start()
    worker = Limited(name=run)
    runner = ModelRunner(worker)
    await runner.serve(server)
    listing = ServiceListing(
        other_bus, name=run, worker=f"{run}-w", kind="models", implementation="x", subjects=["s"], stats=runner.stats
    )
    await listing.start()
    await other_bus.flush()
    answers = await until_answer(lambda: find_workers(bus), lambda answers: ClusterReport(run, answers).retries)
    found = ClusterReport(run, answers)
    assert found.waits["rate limited by h (429)"] == 8
    assert found.retries[f"{run}-w", run] == 5
    assert runner.stats()["model"].oddities == {"replies with another `usage` than specified": 3}
    worker.report = {"x": "many"}
    assert "model" not in runner.stats()


def test_reports_have_defaults_for_processes_of_an_older_version():
    assert (ProcessReport().calls, ProcessReport().storing, ModelReport().waits) == ({}, {}, {})
