"""What the page asks the bridge for: who gets it, page by page, without reading more than is shown."""

import asyncio
from array import array
from typing import Any

import aiohttp
import msgspec
import pytest
import yarl

from gymq.bus import streams
from gymq.bus.jetstream import JetStream
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.execution.services.profiler import read_profile
from gymq.ext.viewer import rollout_list, run_index, run_views
from gymq.ext.viewer.routes import MOST_MORE
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import DeadLetter, Stage, Timing
from gymq.testing import function_call, reply
from tests.support.engine import say
from tests.support.waiting import DEADLINE_S

from .conftest import Web, failure, rollout

KEY = "a-key-that-is-long-enough"
PAGE = rollout_list.PAGE


def rows(page: Any) -> list[tuple[int, int]]:
    return [(row["task_index"], row["rollout_index"]) for row in page["rows"]]


async def test_the_files_of_the_page_need_no_key_and_what_it_reads_does(world: Any, run: str) -> None:

    await world.start_bridge(api_key=KEY)
    async with aiohttp.ClientSession() as session:
        web = Web(world, session)
        for path in ("", "app.js", "style.css", "icon.svg"):
            async with session.get(web.url + path) as answer:
                assert answer.status == 200
        for path in ("runs", "cluster", f"runs/{run}", f"runs/{run}/live", f"runs/{run}/rollouts", f"runs/{run}/tasks"):
            assert (await web.status(path))[0] == 401
        for path in (f"runs/{run}/in-flight", f"rollouts/{run}/0/0", f"rollouts/{run}/0/0/live"):
            assert (await web.status(path))[0] == 401
        for path in (f"runs/{run}/table", f"runs/{run}/compared/{run}", f"runs/{run}/configuration"):
            assert (await web.status(path))[0] == 401
        for name in ("neighbours", "record", "failures"):
            assert (await web.status(f"rollouts/{run}/0/0/{name}"))[0] == 401
        async with session.post(f"{web.url}api/rendered", json=[]) as answer:
            assert answer.status == 401
        async with session.get(f"{web.url}api/runs", headers={"Authorization": f"Bearer {KEY}"}) as answer:
            assert answer.status == 200


async def test_the_page_may_run_and_load_its_own_files_only(web: Web) -> None:
    async with web.session.get(web.url) as answer:
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} <= set(
            policy
        )
        assert "require-trusted-types-for 'script'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "http://" not in await answer.text()


async def test_ui_without_a_slash_leads_to_the_page(web: Web) -> None:
    async with web.session.get(web.url.rstrip("/")) as answer:
        assert answer.status == 200
        assert str(answer.url) == web.url


async def test_the_root_leads_a_browser_to_the_viewer_and_answers_pollers(web: Web) -> None:
    root = web.url.removesuffix("ui/")
    async with web.session.get(root, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}) as answer:
        assert answer.status == 200
        assert str(answer.url) == web.url
    for headers in ({}, {"Accept": "application/json"}):
        async with web.session.get(root, headers=headers, allow_redirects=False) as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})


async def test_a_link_on_another_page_may_lead_to_the_viewer_and_to_nothing_else(web: Web) -> None:
    root = web.url.removesuffix("ui/")
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
    for path, status in (("", 307), ("ui/", 200), ("ui/api/runs", 403), ("server_instances", 403)):
        async with web.session.get(root + path, headers=headers, allow_redirects=False) as answer:
            assert answer.status == status


@pytest.mark.parametrize("path", ["..%2froutes.py", "nothing.js", "%2e%2e%2f__init__.py"])
async def test_no_other_files_are_served(web: Web, path: str) -> None:

    async with web.session.get(yarl.URL(web.url + path, encoded=True)) as answer:
        assert answer.status == 404


async def test_a_run_has_its_curve_its_rewards_its_slowest_and_its_failures(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=5, models=["policy = a model"])
    for index, (reward, duration_s) in enumerate([(1.0, 3.0), (0.0, 9.0), (0.5, 1.0), (1.0, 2.0)]):
        await web.store(rollout(run, 7, index, reward=reward, duration_s=duration_s, num_rollouts=4))
    await web.store(failure(run, 8, retryable=False, duration_s=20.0))
    await web.profile()
    view = await web.get(f"runs/{run}")
    agent = view["overview"]["agents"]["asker"]
    assert view["overview"]["num_rewarded"] == 4
    assert view["overview"]["failures"] == {"model_failed": 1}
    assert agent["pass_at_k"]["4"]["value"] == 100.0
    assert [(bar["low"], bar["count"]) for bar in view["histograms"]["asker"]] == [(0.0, 1), (0.5, 1), (1.0, 2)]
    assert [(slow[0], slow[1], slow[2], slow[4]) for slow in view["slowest"]][:2] == [
        (20.0, 8, 0, None),
        (9.0, 7, 1, 0.0),
    ]


async def test_a_run_whose_statistics_another_version_saved_is_shown_without_their_details(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=1)
    await web.store(rollout(run, 0, num_rollouts=1))
    await web.profile()
    js = web.world.bus.js
    checkpoint = await read_profile(js, run)
    assert checkpoint is not None
    await js.store(subjects.PROFILE.of(run), encode(msgspec.structs.replace(checkpoint, state=b"of another version")))
    view = await web.get(f"runs/{run}")
    assert (view["overview"]["num_rewarded"], view["is_done"], view["histograms"]) == (1, True, {})


async def test_a_run_whose_rollouts_have_all_ended_is_done_also_with_failures(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=3)
    await web.store(rollout(run, 0, num_rollouts=1), failure(run, 1, retryable=True, num_rollouts=1))
    await web.profile()
    view = await web.get(f"runs/{run}")
    assert (view["num_stored"], view["is_done"], view["open_tasks"]) == (2, False, 1)
    await web.store(failure(run, 2, retryable=True, num_rollouts=1))
    await web.profile()
    events = web.events(f"runs/{run}/live")
    async with asyncio.timeout(DEADLINE_S):
        async for _, view in events:
            if view["is_done"]:
                break
    await events.aclose()
    assert (view["num_stored"], view["open_tasks"], view["overview"]["num_rewarded"]) == (3, 0, 1)


async def test_a_rollout_that_ended_with_others_but_came_after_them_is_shown(
    web: Web, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_views, "FRESH_S", 0.0)
    await web.announce(run, num_rollouts=2)
    await web.store(rollout(run, 0))
    await web.profile()
    await web.store(rollout(run, 1))
    assert (await web.get(f"runs/{run}"))["overview"]["num_rewarded"] == 1
    await web.profile()
    assert (await web.get(f"runs/{run}"))["overview"]["num_rewarded"] == 2


async def first_event(web: Web, path: str) -> tuple[str, Any]:
    events = web.events(path)
    try:
        return await anext(events)
    finally:
        await events.aclose()


async def test_there_is_no_task_beyond_the_last_one_of_a_run_that_is_done(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=2)
    await web.store(rollout(run, 0), failure(run, 1))
    await web.profile()
    assert (await first_event(web, f"rollouts/{run}/0/0/live"))[1]["has_next_task"]
    assert not (await first_event(web, f"rollouts/{run}/1/0/live"))[1]["has_next_task"]
    status, message = await web.status(f"rollouts/{run}/2/0/live")
    assert status == 404
    assert "has no task 2 rollout 0" in message


async def test_a_task_of_a_run_that_is_not_done_may_still_come(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=2)
    await web.store(rollout(run, 0))
    await web.profile()
    assert (await first_event(web, f"rollouts/{run}/0/0/live"))[1]["has_next_task"]
    assert (await first_event(web, f"rollouts/{run}/1/0/live"))[1]["state"] == "waiting"


async def test_a_bridge_run_leads_to_the_next_task_only_where_there_is_one(web: Web, run: str) -> None:
    await web.announce(run)
    await web.store(rollout(run, 0), rollout(run, 1))
    for task, has_next in ((0, True), (1, False)):
        assert (await first_event(web, f"rollouts/{run}/{task}/0/live"))[1]["has_next_task"] is has_next


async def test_the_list_of_runs_is_paged_and_searched_by_name(web: Web, run: str) -> None:
    for number in range(27):
        await web.announce(f"{run}-{number:02d}", num_rollouts=1)
    first = await web.get("runs", text=run)
    second = await web.get("runs", text=run, skip=25)
    assert first["num_runs"] == 27
    assert len(first["runs"]) == 25
    assert {one["overview"]["run"] for one in first["runs"] + second["runs"]} == {
        f"{run}-{number:02d}" for number in range(27)
    }


async def test_pages_forwards_show_each_rollout_once_also_among_those_of_other_runs(web: Web, run: str) -> None:
    for task in range(PAGE + 20):
        await web.store(rollout(run, task), rollout(f"{run}-other", task))
    first = await web.get(f"runs/{run}/rollouts")
    second = await web.get(f"runs/{run}/rollouts", after=first["position"])
    assert rows(first) + rows(second) == [(task, 0) for task in range(PAGE + 20)]
    assert (first["is_end"], second["is_end"]) == (False, True)


async def test_a_run_without_rollouts_has_an_empty_page(web: Web, run: str) -> None:
    await web.announce(run)
    assert (await web.get(f"runs/{run}/rollouts", before=2**53))["rows"] == []
    assert (await web.get(f"runs/{run}/rollouts"))["rows"] == []


async def test_pages_backwards_begin_at_the_newest(web: Web, run: str) -> None:
    for task in range(PAGE + 20):
        await web.store(rollout(run, task), rollout(f"{run}-other", task))
    newest = await web.get(f"runs/{run}/rollouts", before=2**53)
    older = await web.get(f"runs/{run}/rollouts", before=newest["rows"][0]["position"])
    assert rows(older)[-20:] + rows(newest) == [(task, 0) for task in range(PAGE + 20)]


async def test_a_page_reads_no_more_than_it_shows_and_one(web: Web, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for task in range(PAGE * 4):
        await web.store(rollout(run, task))
    read = []
    original = JetStream.read

    async def counted(js: Any, stream: str, *args: Any, **kwargs: Any) -> Any:
        async for stored in original(js, stream, *args, **kwargs):
            if stream == streams.ROLLOUTS:
                read.append(stored.sequence)
            yield stored

    monkeypatch.setattr(JetStream, "read", counted)
    await web.get("runs")
    await web.get(f"runs/{run}/rollouts")
    assert len(read) == PAGE + 1
    read.clear()
    await web.get(f"runs/{run}/rollouts", before=2**53)
    assert len(read) <= 2 * PAGE


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"text": "ZÜRICH"}, [1]),
        ({"text": "genève\nor"}, [4]),
        ({"text": "question 4"}, [4]),
        ({"text": "no gpu"}, [3]),
        ({"result": "failed"}, [3]),
        ({"result": "rewarded", "least_reward": 1}, [0, 4]),
        ({"most_reward": 0.5}, [1, 2]),
        ({"failure": "model_failed"}, [3]),
        ({"least_s": 5}, [2]),
        ({"task": 2}, [2]),
        ({"agent": "other"}, [4]),
        ({"text": "nothing of the kind"}, []),
    ],
)
async def test_a_search_finds_what_is_wanted(web: Web, run: str, wanted: dict[str, Any], found: list[int]) -> None:
    await web.store(
        rollout(run, 0),
        rollout(run, 1, text="It is zürich", reward=0.0),
        rollout(run, 2, reward=0.5, duration_s=5.5),
        failure(run, 3, message="No GPU"),
        rollout(run, 4, agent="other", row={"responses_create_params": {"input": "question 4: Genève\nor Bern?"}}),
    )
    page = await web.get(f"runs/{run}/rollouts", **wanted)
    assert [task for task, _ in rows(page)] == found
    assert page["is_end"]


async def test_a_search_that_takes_too_long_says_how_far_it_came(
    web: Web, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_list, "SEARCH_S", 0.0)
    for task in range(3):
        await web.store(rollout(run, task))
    first = await web.get(f"runs/{run}/rollouts", text="question 2")
    assert (first["rows"], first["is_end"], first["looked_at"]) == ([], False, 1)
    found: list[tuple[int, int]] = []
    page = first
    while not page["is_end"]:
        page = await web.get(f"runs/{run}/rollouts", text="question 2", after=page["position"])
        found += rows(page)
    assert found == [(2, 0)]


async def test_a_rollout_is_shown_whole_and_its_tokens_when_asked_for(web: Web, run: str) -> None:
    response = reply(function_call("spell", {"word": "abc"}), "done")
    response["output"][1] |= {
        "prompt_token_ids": array("i", [1, 2, 3]),
        "generation_token_ids": array("i", [4, 5]),
        "generation_log_probs": array("f", [-0.5, -2.0]),
    }
    timings = [Timing(Stage.MODEL, 0.0, 0.5), Timing(Stage.VERIFY, 0.5, 0.25)]
    row = {"answer": "x", "responses_create_params": {"input": "hello", "instructions": "be brief", "temperature": 0.5}}
    await web.store(rollout(run, 3, 1, row=row, response=response, timings=timings))
    view = await web.get(f"rollouts/{run}/3/1")
    assert view["input"] == [{"role": "user", "content": "hello"}]
    assert (view["instructions"], view["row"], view["params"]) == ("be brief", {"answer": "x"}, {"temperature": 0.5})
    assert view["items"][0]["arguments"] == '{"word": "abc"}'
    assert view["items"][1]["tokens"] == dict.fromkeys(("generation_token_ids", "generation_log_probs"), 2) | {
        "prompt_token_ids": 3
    }
    assert "generation_token_ids" not in view["items"][1]
    assert view["timings"] == [["model", 0.0, 0.5], ["verify", 0.5, 0.25]]
    tokens = await web.get(f"rollouts/{run}/3/1/tokens/1")
    assert tokens == {"num_tokens": 2, "ids": [4, 5], "log_probs": [-0.5, -2.0]}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("runs/{run}", 404),
        ("runs/{run}/live", 404),
        ("runs/no.run/rollouts", 404),
        ("runs/%3Cb%3E/rollouts", 404),
        ("rollouts/{run}/0/0", 404),
        ("rollouts/{run}/-1/0", 404),
        ("rollouts/{run}/1/99999999999999999999", 404),
        ("rollouts/{run}/0/0/tokens/0", 404),
        ("runs/{run}/rollouts?least_reward=high", 422),
        ("runs/{run}/rollouts?result=odd", 422),
    ],
)
async def test_a_path_that_is_wrong_has_a_status_and_a_message(web: Web, run: str, path: str, status: int) -> None:
    given, message = await web.status(path.format(run=run))
    assert given == status
    assert message


async def test_a_row_that_is_no_row_is_shown_as_it_is(web: Web, run: str) -> None:
    broken = failure(run, 0)
    broken.row = b"\xff not json"
    await web.store(broken)
    assert "not json" in (await web.get(f"rollouts/{run}/0/0"))["row"]


async def test_a_rollout_is_followed_while_it_is_made(working: Web) -> None:
    world = working.world
    answered, go_on = asyncio.Event(), asyncio.Event()

    async def turn(body: Any) -> Any:
        if body["messages"][-1]["role"] != "tool":
            return say(None, ("add", {"amount": 2}))
        answered.set()
        await go_on.wait()
        return say("two")

    world.engine.turn = turn
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}]
    row = world.row("count", agent="adder", params={"tools": tools}, start=0, expected=2)
    result = asyncio.create_task(working.session.post(f"{world.head}/run", json=row))
    await answered.wait()
    assert world.bridge is not None
    run = world.bridge.rollouts.run
    assert [task["agent"] for task in await working.get(f"runs/{run}/in-flight")] == [world.name("adder")]
    names = []
    async for name, body in working.events(f"rollouts/{run}/0/0/live"):
        names.append(name)
        if name == "unfinished":
            assert (body["state"], body["input"][0]["content"]) == ("running", "count")
        elif name == "items" and not go_on.is_set():
            assert [item["type"] for item in body["items"]] == ["function_call"]
            assert all(item["at"] for item in body["items"])
            go_on.set()
        elif name == "stored":
            assert body["reward"] == 1.0
            assert [timing[0] for timing in body["timings"]] == ["seed", "model", "tool", "model", "verify"]
    assert names[0] == "unfinished"
    assert names[-1] == "stored"
    assert (await result).status == 200


async def test_a_run_tells_its_numbers_again_when_they_change(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=2)
    events = web.events(f"runs/{run}/live")
    _, before = await anext(events)
    assert before["overview"]["num_rewarded"] == 0
    await web.store(rollout(run, 0))
    await web.profile()
    async with asyncio.timeout(DEADLINE_S):
        _, after = await anext(events)
        while not after["overview"]["num_rewarded"]:  # the rollout is counted before its reward is
            _, after = await anext(events)
    assert after["overview"]["num_rewarded"] == 1
    await events.aclose()


async def test_a_page_that_listens_does_not_hold_the_viewer_up(web: Web, run: str) -> None:
    await web.announce(run)
    events = web.events(f"runs/{run}/live")
    await anext(events)
    assert web.viewer is not None
    web.viewer._context.draining = True
    async with asyncio.timeout(DEADLINE_S):
        assert [name async for name, _ in events] == []


def of(page: Any) -> list[tuple[int, int]]:
    return [(one["task_index"], one["rollout_index"]) for one in page["rows"]]


async def store_mixed(web: Web, run: str) -> None:
    asked = {"expected_answer": "Bern", "responses_create_params": {"input": "the capital?"}}
    await web.store(
        rollout(run, 0, 0, reward=0.5, duration_s=3.0, row=asked),
        rollout(run, 0, 1, reward=1.0, duration_s=1.0, agent="other"),
        failure(run, 1, 0),
        rollout(run, 2, 0, reward=0.0, duration_s=2.0),
        rollout(run, 2, 1, reward=0.0, duration_s=9.0),
    )


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]),
        ({"order": "down"}, [(2, 1), (2, 0), (1, 0), (0, 1), (0, 0)]),
        ({"sort": "reward"}, [(2, 0), (2, 1), (0, 0), (0, 1), (1, 0)]),
        ({"sort": "reward", "order": "down"}, [(0, 1), (0, 0), (2, 0), (2, 1), (1, 0)]),
        ({"sort": "duration_s", "result": "rewarded"}, [(0, 1), (2, 0), (0, 0), (2, 1)]),
        ({"sort": "expected", "task": 0}, [(0, 0), (0, 1)]),
        ({"agent": "other"}, [(0, 1)]),
        ({"least_reward": 0.5, "skip": 1}, [(0, 1)]),
    ],
)
async def test_rollouts_are_sorted_and_filtered(web: Web, run: str, asked: Any, found: Any) -> None:
    await store_mixed(web, run)
    page = await web.get(f"runs/{run}/table", **asked)
    assert of(page) == found
    assert (page["num_read"], page["is_whole"]) == (5, True)


async def test_rollouts_are_sorted_by_any_field_of_verdicts_and_rows(web: Web, run: str) -> None:
    values: list[Any] = [0.5, 2, "high", None, True, ""]
    for task, value in enumerate(values):
        row = {"level": 9 - task, "info": {"source": {"page": task}}, "responses_create_params": {"input": "?"}}
        await web.store(rollout(run, task, row=row, verdict={"score": value, "calls": [1, 2], "empty": {}}))
    found = await web.get(f"runs/{run}/table", sort="verdict.score")
    assert of(found) == [(0, 0), (4, 0), (1, 0), (2, 0), (3, 0), (5, 0)]
    row_fields = ["row.info.source.page", "row.level"]
    assert found["columns"] == [*row_fields, "verdict.calls", "verdict.score"]
    assert found["rows"][1]["details"] == {
        "verdict.score": True,
        "verdict.calls": "[2]",
        "row.level": 5,
        "row.info.source.page": 4,
    }
    assert of(await web.get(f"runs/{run}/table", sort="row.level"))[0] == (5, 0)
    assert len(of(await web.get(f"runs/{run}/table", sort="row.none"))) == len(values)


async def test_a_row_with_many_and_long_fields_keeps_a_part_of_them(web: Web, run: str) -> None:
    verdict = {f"{number:03}{'n' * number}": "x" * 1000 for number in range(100)}
    await web.store(rollout(run, 0, verdict=verdict))
    (row,) = (await web.get(f"runs/{run}/table"))["rows"]
    assert len(row["details"]) == 40
    assert {len(value) for value in row["details"].values()} == {80}


async def test_a_row_has_what_was_asked_expected_and_answered(web: Web, run: str) -> None:
    await store_mixed(web, run)
    row = (await web.get(f"runs/{run}/table"))["rows"][0]
    assert {name: row[name] for name in ("prompt", "expected", "words", "turns")} == {
        "prompt": "the capital?",
        "expected": "Bern",
        "words": "Bern",
        "turns": 1,
    }


async def test_a_table_is_read_in_parts_and_grows_with_its_run(
    web: Web, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_mixed(web, run)
    monkeypatch.setattr(run_index, "READ_S", 0.0)
    sizes = []
    page: Any = {"is_whole": False}
    while not page["is_whole"]:
        page = await web.get(f"runs/{run}/table")
        sizes.append(page["num_read"])
    assert sizes == [1, 2, 3, 4, 5]
    await web.store(rollout(run, 9))
    assert (await web.get(f"runs/{run}/table"))["num_read"] == 6


async def test_a_run_that_was_deleted_and_begun_again_shows_no_old_rollouts(web: Web, run: str) -> None:
    await web.store(*(rollout(run, task, text="old", row={"old": 1}) for task in range(3)))
    assert (await web.get(f"runs/{run}/table"))["num_read"] == 3
    await streams.delete_run(web.world.bus.js, run)
    await web.store(rollout(run, 1, text="new"))
    page = await web.get(f"runs/{run}/table")
    assert [(row["task_index"], row["words"]) for row in page["rows"]] == [(1, "new")]
    assert page["columns"] == ["row.answer"]


async def test_of_a_larger_run_the_first_rollouts_count_as_all(
    web: Web, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_index, "MOST_ROWS", 2)
    await web.store(*(rollout(run, task) for task in range(4)))
    for part in ("table", "tasks", "charts", "failing", f"compared/{run}"):
        for _ in range(2):
            assert (await web.get(f"runs/{run}/{part}"))["is_whole"] is True
    assert (await web.get(f"runs/{run}/table"))["num_read"] == 2


async def test_rewards_beyond_what_statistics_count_have_no_mean(web: Web, run: str) -> None:
    await web.store(rollout(run, 0, reward=1.7e308), rollout(run, 0, 1, reward=1.7e308))
    (task,) = (await web.get(f"runs/{run}/tasks"))["tasks"]
    assert (task["mean"], task["rollouts"]) == (None, [[0, 1.7e308], [1, 1.7e308]])
    assert (await web.get(f"runs/{run}/compared/{run}"))["tasks"][0]["difference"] is None


async def test_a_failure_that_was_replaced_is_not_in_the_table(web: Web, run: str) -> None:
    await web.store(failure(run, 0, retryable=True))
    assert (await web.get(f"runs/{run}/table"))["rows"][0]["reward"] is None
    store = OutcomeStore(web.world.bus)
    found = await store.find_outcome(run, 0, 0)
    assert found is not None
    assert await store.put(rollout(run, 0, attempt=1), replaces=found[0], patience_s=30.0)
    page = await web.get(f"runs/{run}/table")
    assert [row["reward"] for row in page["rows"]] == [1.0]


@pytest.mark.parametrize(
    ("task", "rollout", "order", "previous", "following", "place"),
    [
        (0, 0, "task", None, [0, 1], (0, 5)),
        (1, 0, "task", [0, 1], [2, 0], (2, 5)),
        (2, 1, "task", [2, 0], None, (4, 5)),
        (0, 0, "failure", None, [1, 0], (0, 1)),
        (2, 0, "failure", [1, 0], None, (1, 1)),
        (2, 1, "reward", [2, 0], [0, 0], (1, 4)),
        (0, 1, "reward", [0, 0], None, (3, 4)),
    ],
)
async def test_a_rollout_has_neighbours_in_each_order(
    web: Web, run: str, task: int, rollout: int, order: str, previous: Any, following: Any, place: Any
) -> None:
    await store_mixed(web, run)
    found = await web.get(f"rollouts/{run}/{task}/{rollout}/neighbours", order=order)
    assert (found["previous"], found["next"]) == (previous, following)
    assert (found["num_before"], found["num_rollouts"]) == place


async def test_tasks_without_variance_are_told_apart(web: Web, run: str) -> None:
    await store_mixed(web, run)
    page = await web.get(f"runs/{run}/tasks")
    assert [task["rollouts"] for task in page["tasks"]] == [[[0, 0.5], [1, 1.0]], [[0, None]], [[0, 0.0], [1, 0.0]]]
    assert [task["is_uniform"] for task in page["tasks"]] == [False, False, True]
    assert (page["num_tasks"], page["num_uniform"]) == (3, 1)
    assert [task["task_index"] for task in (await web.get(f"runs/{run}/tasks", show="uniform"))["tasks"]] == [2]
    assert [task["task_index"] for task in (await web.get(f"runs/{run}/tasks", sort="mean"))["tasks"]] == [2, 0, 1]
    assert [task["task_index"] for task in (await web.get(f"runs/{run}/tasks", sort="spread"))["tasks"]] == [0, 2, 1]


async def test_two_runs_are_compared_by_their_paired_difference(web: Web, run: str) -> None:
    for task, (left, right) in enumerate([(0.0, 1.0), (0.5, 0.5), (1.0, 0.5), (0.0, 0.75)]):
        await web.store(rollout(run, task, reward=left), rollout(f"{run}x", task, reward=right))
    await web.store(rollout(run, 9), failure(run, 8), failure(f"{run}x", 8))
    found = await web.get(f"runs/{run}/compared/{run}x", sort="worse")
    (by,) = found["differences"]
    assert (by["num_better"], by["num_worse"], by["num_equal"], by["num_tasks"]) == (2, 1, 1, 5)
    assert by["difference"]["value"] == pytest.approx(0.3125)
    assert by["difference"]["interval"]["low"] < 0.3125 < by["difference"]["interval"]["high"]
    assert [pair["task_index"] for pair in found["tasks"]] == [2, 1, 3, 0, 8]
    better = await web.get(f"runs/{run}/compared/{run}x", sort="better")
    assert [pair["difference"] for pair in better["tasks"]] == [1.0, 0.75, 0.0, -0.5, None]


async def test_as_many_runs_as_can_be_compared_are_read_to_their_end(
    web: Web, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_index, "READ_S", 0.0)
    runs = [f"{run}{number}" for number in range(MOST_MORE + 2)]
    await web.store(*(rollout(one, task) for one in runs for task in range(3)))
    path, more = f"runs/{runs[0]}/compared/{runs[1]}", ",".join(runs[2:])
    asked = [(await web.get(path, more=more))["is_whole"] for _ in range(5)]
    assert asked[-1] is True


async def test_further_runs_are_compared_with_the_first_one(web: Web, run: str) -> None:
    for task in range(2):
        await web.store(rollout(run, task, reward=0.0), rollout(f"{run}x", task, reward=1.0))
    await web.store(rollout(f"{run}y", 1, reward=0.5))
    found = await web.get(f"runs/{run}/compared/{run}x", more=f"{run}y")
    assert [(one["run"][-1], one["difference"]["value"], one["num_tasks"]) for one in found["differences"]] == [
        ("x", 1.0, 2),
        ("y", 0.5, 1),
    ]
    assert [[more and more["mean"] for more in pair["more"]] for pair in found["tasks"]] == [[None], [0.5]]
    assert (await web.status(f"runs/{run}/compared/{run}x", more=",".join("abcdefg")))[0] == 422
    assert (await web.status(f"runs/{run}/compared/{run}x", more="a.b"))[0] == 404


async def test_a_record_is_given_exactly_as_it_is_stored(web: Web, run: str) -> None:
    await web.store(rollout(run, 0, verdict={"note": "x"}))
    record = await web.get(f"rollouts/{run}/0/0/record")
    assert (record["type"], record["verdict"], record["row"]["answer"]) == ("rollout.v1", {"note": "x"}, "Bern")


async def test_the_failures_of_a_rollout_are_listed_the_newest_first(web: Web, run: str) -> None:
    for number, where in enumerate(("0/0", "0/0", "0/1")):
        reason, subject = f"reason {number}", subjects.TASK.of(run, "asker")
        letter = DeadLetter(subject=subject, reason=reason, body=b"", at=1.7e9 + number, rollout=f"{run}/{where}")
        await web.world.bus.js.store(subjects.DEAD_LETTER_OF_RUN.of("agent", run), encode(letter))
    assert [one["reason"] for one in await web.get(f"rollouts/{run}/0/0/failures")] == ["reason 1", "reason 0"]


async def test_texts_are_rendered_and_what_is_no_list_of_texts_is_refused(web: Web) -> None:
    async def answer(body: Any) -> Any:
        async with web.session.post(f"{web.url}api/rendered", json=body) as answered:
            return answered.status, await answered.json()

    assert await answer([{"text": "**a**"}]) == (200, [[["p", {}, ["strong", {}, "a"]]]])
    wrongs: list[Any] = [{}, [{"txt": ""}], [{"text": ""}] * 65]
    for wrong in wrongs:
        assert (await answer(wrong))[0] == 422
