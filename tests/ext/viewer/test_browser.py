"""The page in a real browser: what a model wrote stays text, and what happens is seen as it happens."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gymq.bus.queue.steering import read_steering
from gymq.config import record_instances
from gymq.data.run_changes import RecordedInstance
from gymq.data.run_configuration import encode_configuration
from gymq.data.run_files import Manifest, RunFiles
from gymq.ext.viewer.viewer import Viewer
from gymq.protocol.instances import Instance
from gymq.protocol.messages import FailureClass, Stage, Timing, Unresolved
from gymq.testing import function_call, reply
from tests.support.browser import Page, needs_browser
from tests.support.engine import say

from .conftest import Web, failure, rollout

pytestmark = needs_browser

KEY = "a-key-that-is-long-enough"


def hostile(number: int) -> str:
    return f"<script>window.hit={number}</script><img src=x onerror='window.hit={number}'>"


async def is_unharmed(page: Page) -> None:
    assert await page.value("window.hit") is None
    assert await page.value("document.querySelectorAll('img, iframe, script, object, embed').length") == 1  # its module
    assert page.problems == []


async def store_hostile(web: Web, run: str) -> None:
    response = reply(function_call(hostile(1), {"word": hostile(2)}), hostile(3))
    response["output"][1:1] = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": hostile(4)}]},
        {"type": "function_call_output", "call_id": hostile(5), "output": hostile(6)},
        {"type": hostile(7), "odd": hostile(8)},
        {"type": "message", "role": "assistant onclick=x", "content": [{"type": "refusal", "refusal": hostile(9)}]},
    ]
    response["model"] = hostile(10)
    params = {"input": hostile(11), "instructions": hostile(12), "tools": [{"type": "function", "name": hostile(13)}]}
    row = {"answer": hostile(14), "responses_create_params": params}
    verdict = {"extracted_answer": hostile(15), hostile(16): 1}
    parts: dict[str, Any] = {
        "timings": [Timing(Stage.MODEL, 0.0, 1.0)],
        "worker": hostile(17),
        "policy_versions": [hostile(18)],
    }
    worker = RecordedInstance("models", hostile(26), {"prompt": f"{hostile(27)}\n{hostile(28)}", hostile(29): 1})
    configuration = encode_configuration({hostile(30): hostile(31)}, {hostile(32): worker})
    await web.announce(
        run, models=[hostile(19)], note=hostile(23), tags=[hostile(24)], num_rollouts=3, configuration=configuration
    )
    await web.store(rollout(run, 0, row=row, response=response, verdict=verdict, agent="asker", **parts))
    await web.store(failure(run, 1, message=hostile(20), worker=hostile(25)))
    unresolved: dict[str, Any] = {
        "failure_class": FailureClass.JUDGE_FAILED,
        "message": hostile(21),
        "response": reply(hostile(22)),
    }
    await web.store(Unresolved(run=run, task_index=2, rollout_index=0, agent="asker", row=b"<script>", **unresolved))
    await web.profile()


async def test_what_a_model_wrote_stays_text_on_every_view(web: Web, run: str, page: Page) -> None:
    await store_hostile(web, run)
    views = {
        "": [19, 23, 24],
        f"run/{run}?tab=rollouts": [3, 11, 14, 19, 20, 21, 23, 24],
        f"run/{run}?tab=failures": [20, 21, 25],
        f"run/{run}?tab=charts": [18],
        f"run/{run}?tab=configuration": [12, 13, 19, *range(26, 33)],
        f"run/{run}?tab=tasks": [11],
        f"rollout/{run}/0/0": [*range(1, 19)],
    }
    views |= {f"rollout/{run}/1/0": [20], f"rollout/{run}/2/0": [21, 22]}
    await web.announce(f"{run}x", num_rollouts=3)
    await web.store(rollout(f"{run}x", 0))
    views |= {f"compare/{run}/{run}x": [11, 19, *range(26, 33)], f"compare/{run}/{run}/0/0": [3, 15]}
    await page.open(web.url)
    for view, shown in views.items():
        await page.follow(f"#/{view}")
        if view.startswith("rollout"):
            await page.until("document.querySelector('.reading h1') !== null")
            await page.unfold()
        for number in shown:
            await page.until(f"document.body.textContent.includes('hit={number}<')")
        await is_unharmed(page)


@pytest.mark.nightly
async def test_the_lines_of_an_authors_mistake_are_kept_apart(web: Web, run: str, page: Page) -> None:
    message = "capitals failed to verify: KeyError: 'bern'\n  /work/capitals.py:9 in verify: return table[text]"
    await web.announce(run)
    await web.store(failure(run, 0, message=message, failure_class=FailureClass.VERIFIER_FAILED))
    await web.profile()
    await page.size(1280)
    lines = "/KeyError: 'bern'\\n *.work.capitals.py:9/"
    for tab, part in (("failures", ".block p.lines"), ("rollouts", "table td .clip")):
        await page.open(f"{web.url}#/run/{run}?tab={tab}")
        await page.until(f"[...document.querySelectorAll({part!r})].some(found => {lines}.test(found.innerText))")
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.until(f"{lines}.test(document.body.innerText)")


async def test_an_address_cannot_be_made_to_harm(web: Web, page: Page) -> None:
    await page.open(f"{web.url}#/run/%3Cimg%20src%3Dx%20onerror%3Dwindow.hit%3D1%3E")
    for view in (None, "run/x?text=%22%3E%3Cscript%3Ewindow.hit=2", "%%%"):
        if view is not None:
            await page.follow(f"#/{view}")
        await page.until("document.querySelector('.bad') !== null")
        assert await page.value("window.hit") is None
    await page.open(f"{web.url}?#/?text=%22%3E%3Cscript%3Ewindow.hit=3")
    await page.shows("no run has")
    await is_unharmed(page)


async def test_should_the_page_parse_markup_the_browser_refuses_it(web: Web, page: Page) -> None:
    await page.open(web.url)
    await page.shows("Runs")
    tried = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'parsed' } catch (e) { return e.name } })()"
    assert await page.value(tried) == "TypeError"
    await page.value("document.body.append(Object.assign(document.createElement('a'), {href: 'javascript:hit=1'}))")
    await page.value("document.body.lastChild.click()")
    await page.value("fetch('http://127.0.0.1:1/').catch(() => 0)")
    await page.until("true")
    assert await page.value("window.hit") is None
    assert any("connect-src" in problem for problem in page.problems)


async def test_marks_that_turn_text_around_are_shown_as_codes(web: Web, run: str, page: Page) -> None:
    await web.store(rollout(run, 0, text="safe \u202eevil\u202c \x1b[31m"))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.shows("safe \\u202eevil\\u202c \\u001b[31m")


async def test_a_bridge_with_a_key_asks_for_it_once(world: Any, run: str, page: Page) -> None:
    await world.start_bridge(api_key=KEY)
    async with aiohttp.ClientSession() as session:
        web = Web(world, session)
        await web.announce(run, num_rollouts=1)
        await page.open(f"{web.url}#/?text={run}")
        await page.until("document.querySelector('input[type=password]') !== null")
        for key, then in (("wrong", "input[type=password]"), (KEY, "table")):
            await page.value(f"document.querySelector('input[type=password]').value = '{key}'")
            await page.value("document.querySelector('form.key button').click()")
            await page.until(f"document.querySelector('main {then}') !== null")
        await page.shows(run)


async def test_a_run_grows_before_the_eyes(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=4)
    await web.store(rollout(run, 0, reward=0.0))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=rollouts")
    await page.shows("of 4")
    await page.until("document.querySelector('.tile .value').textContent === '1'")
    await web.store(rollout(run, 0, 1), rollout(run, 1))
    await web.profile()
    await page.until("document.querySelector('.tile .value').textContent === '3'")
    await page.until("document.querySelectorAll('.rollouts tbody tr').length === 3")
    await page.follow(f"#/run/{run}?tab=charts")
    await page.until("document.querySelectorAll('svg.chart').length > 2")
    await is_unharmed(page)


@pytest.mark.parametrize(
    "deep",
    [
        '{"a":' * 20_000 + "1" + "}" * 20_000,
        pytest.param("[" * 200_000 + "]" * 200_000, marks=pytest.mark.nightly),
    ],
)
async def test_a_call_that_is_nested_as_deeply_as_it_is_long_is_shown(
    web: Web, run: str, page: Page, deep: str
) -> None:
    response = reply("found")
    called = {"type": "function_call", "call_id": "a", "name": "look", "arguments": deep}
    response["output"][:0] = [called, {"type": "function_call_output", "call_id": "a", "output": deep}]
    await web.store(rollout(run, 0, response=response))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.shows("look")
    for _ in range(3):
        await page.press("c")
    await page.shows("arguments a")
    await is_unharmed(page)


@pytest.mark.nightly
async def test_a_run_that_is_done_is_not_live_and_its_last_task_leads_nowhere(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=2)
    await web.store(rollout(run, 0))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=rollouts")
    await page.shows("queued or in flight")
    assert await page.value("document.getElementById('live').hidden") is False
    await web.store(failure(run, 1, retryable=True))
    await web.profile()
    await page.until("document.getElementById('live').hidden")
    await page.shows("done")
    widths = "[...document.querySelectorAll('.track.wide .fill')].map((part) => part.style.width)"
    assert await page.value(widths) == ["50%", "50%"]
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.shows("next task")
    await page.open(f"{web.url}#/rollout/{run}/1/0")
    await page.shows("no GPU")
    assert "next task" not in await page.value("document.body.innerText")
    await page.open(f"{web.url}#/rollout/{run}/2/0")
    await page.shows("has no task 2 rollout 0")
    await is_unharmed(page)


async def test_turns_appear_while_a_rollout_is_made(working: Web, page: Page) -> None:
    world = working.world
    answered, go_on = asyncio.Event(), asyncio.Event()

    async def turn(body: Any) -> Any:
        if body["messages"][-1]["role"] != "tool":
            return say(None, ("add", {"amount": 2}))
        answered.set()
        await go_on.wait()
        return say("it is two " + hostile(1))

    world.engine.turn = turn
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}]
    row = world.row("count to two", agent="adder", params={"tools": tools}, start=0, expected=2)
    result = asyncio.create_task(working.session.post(f"{world.head}/run", json=row))
    await answered.wait()
    assert world.bridge is not None
    await page.open(f"{working.url}#/rollout/{world.bridge.rollouts.run}/0/0")
    await page.shows("count to two")
    await page.shows("Turn 1")
    await page.shows("in progress")
    go_on.set()
    await page.shows("reward 1")
    await page.shows("it is two <script>")
    await is_unharmed(page)
    assert (await result).status == 200


@pytest.mark.nightly
async def test_pages_and_searches_of_rollouts(web: Web, run: str, page: Page) -> None:
    await web.announce(run)
    await web.store(*[rollout(run, task, text=f"answer {task}") for task in range(60)])
    await page.open(f"{web.url}#/run/{run}?tab=rollouts")
    await page.shows("answer 49")
    await page.value("[...document.querySelectorAll('.pager a')].find((it) => it.textContent === 'next').click()")
    await page.shows("answer 59")
    await page.value("document.querySelector('input[name=text]').value = 'ANSWER 31'")
    await page.value("document.querySelector('form.filters').requestSubmit()")
    await page.shows("1 found among 60")
    assert await page.value("document.querySelectorAll('.rollouts tbody tr').length") == 1


async def test_what_a_search_finds_is_sorted_by_task(web: Web, run: str, page: Page) -> None:
    await web.announce(run)
    await web.store(*(rollout(run, *of, text="answer") for of in ((10, 1), (2, 0), (10, 0), (1, 0))))
    await page.open(f"{web.url}#/run/{run}?tab=rollouts&text=answer")
    await page.shows("4 found among 4")
    shown = await page.value(
        "[...document.querySelectorAll('.rollouts tbody tr')].map((row) => row.children[0].innerText)"
    )
    assert [text.split()[0::2] for text in shown] == [["1", "0"], ["2", "0"], ["10", "0"], ["10", "1"]], shown


async def test_two_runs_are_compared_agent_by_agent(web: Web, run: str, page: Page) -> None:
    for name, reward in ((run, 0.0), (f"{run}x", 1.0)):
        await web.announce(name)
        await web.store(rollout(name, 0, reward=reward), rollout(name, 1, reward=1.0, agent="other_simple_agent"))
    await web.store(failure(run, 2), rollout(run, 0, 1))
    await web.store(rollout(run, 3, agent="other_simple_agent"), rollout(run, 3, 1, agent="other_simple_agent"))
    await web.profile()
    await page.open(f"{web.url}#/compare/{run}/{run}x")
    await page.shows("Task by task")
    cells = "[...document.querySelectorAll('tr')].map((row) => [...row.children].map((cell) => cell.textContent))"
    rows = {name: rest for name, *rest in await page.value(cells)}
    assert [[value.split(" %")[0] for value in rows[f"{agent}: pass@1"]] for agent in ("asker", "other")] == [
        ["50.0", "100.0"],
        ["100.0", "100.0"],
    ]
    assert "mean of 5 of 6" in rows["mean reward"][0]
    assert "other: pass@2" not in rows  # one of its tasks has a single reward
    headings = await page.value("[...document.querySelectorAll('h2')].map((one) => one.textContent)")
    assert {"asker: pass@k in %", "other: pass@k in %", "asker: rewards", "other: rewards"} <= set(headings)


async def test_a_run_lands_on_its_table_by_environment_and_its_tasks(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=64)
    for task, agent in ((0, "sums_simple_agent"), (1, "words_simple_agent")):
        rewards = [float(at % 4 == 0) for at in range(16)]
        await web.store(*(rollout(run, task, at, reward=rewards[at], agent=agent, num_rollouts=16) for at in range(16)))
    await web.profile()
    await page.size(1280, 900)
    await page.open(f"{web.url}#/run/{run}")
    cells = "(one) => [...one.cells].map((cell) => cell.innerText.split('\\n')[0])"
    rows = f"[...document.querySelectorAll('.environments tr')].map({cells})"
    await page.until("document.querySelectorAll('.environments tbody tr').length === 3")
    heads, *found = await page.value(rows)
    assert heads == [
        "environment",
        "mean reward",
        *(f"pass@{k} %" for k in (1, 2, 4, 8, 16)),
        "tasks",
        "rollouts",
        "failed",
    ]
    assert [[row[0], *row[-3:]] for row in found] == [
        ["sums", "1", "16", "0"],
        ["words", "1", "16", "0"],
        ["all", "2", "32", "0"],
    ]
    assert [row[1:3] for row in found] == [["0.250", "25.0"]] * 3
    # All sixteen dots of a task are in a line.
    await page.until("document.querySelectorAll('.dots').length === 2")
    tops = "new Set([...document.querySelector('.dots').children].map((dot) => dot.getBoundingClientRect().top)).size"
    assert await page.value(tops) == 1
    await page.follow(f"#/run/{run}?tab=charts")
    await page.until("document.querySelectorAll('.entry').length === 2")
    assert await page.value("[...document.querySelectorAll('.entry')].map((one) => one.innerText)") == ["sums", "words"]
    assert page.problems == []


async def test_a_run_of_which_rollouts_failed_looks_failed(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=4)
    await web.store(*(rollout(run, 0, at, num_rollouts=4) for at in range(2)))
    failed = {"failure_class": FailureClass.VERIFIER_FAILED, "stage": Stage.VERIFY, "message": "KeyError: 'bern'"}
    await web.store(*(failure(run, 0, at, num_rollouts=4, **failed) for at in (2, 3)))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}")
    await page.until("document.querySelector('.badge.failing')?.textContent === 'done, 2 failed'")
    for words in ("mean of 2 of 4", "≥ 0.500 with failures as 0"):
        await page.shows(words)
    widths = "[...document.querySelectorAll('.track .fill')].map((part) => [part.className, part.style.width])"
    assert await page.value(widths) == [["fill rewarded", "50%"], ["fill failed", "50%"]]
    await page.follow(f"#/run/{run}?tab=failures")
    await page.shows("gymq score")
    assert await page.value("document.querySelector('.tabbed').innerText.split(\"KeyError: 'bern'\").length") == 2
    await page.follow(f"#/?text={run}")
    await page.until("document.querySelector('.runs .badge.failing')?.textContent === 'done, 2 failed'")


@pytest.mark.nightly
async def test_numbers_under_pass_at_k_do_not_overlap(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=18)
    await web.store(*(rollout(run, 0, number) for number in range(18)))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=charts")
    ticks = "[...document.querySelectorAll('svg.chart .tick.middle')].map((tick) => tick.textContent)"
    await page.until(f"{ticks}.includes('18')")
    shown = await page.value(ticks)
    assert {"1", "2", "4", "8"} < set(shown)
    assert "16" not in shown


@pytest.mark.nightly
async def test_how_far_a_run_is_stays_in_its_column(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=4)
    await web.store(rollout(run, 0))
    await web.profile()
    await page.open(f"{web.url}#/?text={run}")
    bar = await page.until("document.querySelector('.track').getBoundingClientRect().toJSON()")
    cell = await page.value("document.querySelector('td:has(.track)').getBoundingClientRect().toJSON()")
    assert cell["left"] <= bar["left"] < bar["right"] <= cell["right"]


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.nightly), 400])
async def test_nothing_is_wider_than_the_window(web: Web, run: str, page: Page, width: int) -> None:
    response = reply(function_call("spell", {"word": "x" * 500}), "y" * 3000)
    name = f"{run}{'n' * 40}"
    await web.announce(name, models=["m" * 200], num_rollouts=4)
    await web.store(rollout(name, 0, response=response), rollout(name, 0, 1), failure(name, 1, message="z" * 900))
    await web.profile()
    await page.size(width)
    await page.open(web.url)
    tabs = [f"run/{name}?tab={tab}" for tab in ("tasks", "failures", "charts", "configuration")]
    for view in (
        "",
        f"run/{name}",
        *tabs,
        f"rollout/{name}/0/0",
        f"compare/{name}/{name}",
        f"compare/{name}/{name}/0/0",
    ):
        await page.follow(f"#/{view}")
        await page.until("document.querySelector('main .card') && !document.body.innerText.includes('loading …')")
        wide = (
            "[...document.querySelectorAll('main *')].find((one) => one.getBoundingClientRect().right > innerWidth + 1"
        )
        wide += " && !one.closest('.scroll, .strip'))?.outerHTML.slice(0, 300)"
        is_narrow = await page.value("document.documentElement.scrollWidth <= window.innerWidth")
        assert is_narrow, (view, await page.value(wide))


MARKDOWN = """# A plan

**bold** and `code`

```python
def f(): return 1
```

| a | b |
|---|---|
| 1 | 2 |

$x^2$
"""
HOSTILE_MARKDOWN = [
    "<img src=x onerror=window.hit=1> **a**",
    "[press](javascript:window.hit=1) <javascript:window.hit=1>",
    "![a](data:text/html,<script>window.hit=1</script>) ![b](data:image/svg+xml;base64,PHN2Zy8+)",
    "$\\href{javascript:window.hit=1}{x}$ $\\text{</mtext><script>window.hit=1</script>}$",
    "<math><annotation-xml encoding='text/html'><img src=x onerror=window.hit=1></annotation-xml></math> *b*",
    "<svg><script>window.hit=1</script></svg> `c`",
    "> " * 300 + "*deep*",
    "```html\n<script>window.hit=1</script>\n```",
]


async def test_a_reply_is_shown_as_markdown_with_code_tables_and_formulas(web: Web, run: str, page: Page) -> None:
    await web.store(rollout(run, 0, text=MARKDOWN))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    turn = "document.querySelector('.turn')"
    for part in ("h3", "strong", "pre.code .keyword", "table td", "math msup"):
        await page.until(f"{turn}.querySelector('{part}') !== null")
    assert page.problems == []


async def test_hostile_markdown_stays_harmless_once_it_is_rendered(web: Web, run: str, page: Page) -> None:
    everything = "\n\n".join(HOSTILE_MARKDOWN)
    response = reply(function_call("f", {"code": everything}), everything)
    response["output"][1:1] = [{"type": "function_call_output", "output": json.dumps({"sql": everything})}]
    row = {"expected_answer": everything, "responses_create_params": {"input": everything, "instructions": everything}}
    judged = {"request": {"input": everything}, "response": {"output": response["output"][-1:]}}
    verdict = {"extracted_answer": everything, "judge_evaluations": [judged | {"verdict_label": everything}]}
    await web.store(rollout(run, 0, row=row, response=response, verdict=verdict))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.until("document.querySelector('.reading h1') !== null")
    await page.unfold()
    await page.whole(1280)
    await page.until("document.querySelector('.rich strong') !== null")
    links = "[...document.querySelectorAll('main a')].every((a) => a.getAttribute('href').startsWith('#/'))"
    assert await page.value(links)
    assert await page.value("document.querySelectorAll('main svg, main annotation-xml, main [style*=url]').length") == 0
    await is_unharmed(page)


@pytest.mark.nightly
async def test_an_image_within_a_message_is_shown(web: Web, run: str, page: Page) -> None:
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    parts = [
        {"type": "input_text", "text": "what is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{dot}"},
        {"type": "input_image", "image_url": "https://example.org/x.png"},
    ]
    row = {"responses_create_params": {"input": [{"role": "user", "content": parts}]}}
    await web.store(rollout(run, 0, row=row))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.until("document.querySelector('main img')?.naturalWidth === 1")
    assert await page.value("document.querySelectorAll('main img').length") == 1
    assert page.problems == []


async def test_calls_and_reasoning_are_folded_and_opened_by_a_key(web: Web, run: str, page: Page) -> None:
    response = reply(
        function_call("spell", {"word": "abc", "options": {"case": "upper", "x": list(range(80))}}), "done"
    )
    first = response["output"][0]
    response["output"][1:1] = [
        {"type": "function_call_output", "call_id": first["call_id"], "output": '{"letters": ["A", "B", "C"]}'},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "one\n\ntwo"}]},
    ]
    await web.store(rollout(run, 0, response=response))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.until("document.querySelector('.block.call summary')?.innerText.includes('letters')")
    opened = "document.querySelectorAll('.turn details[open]').length"
    assert await page.value(opened) == 0
    await page.unfold()
    assert await page.value(opened) > 2
    assert await page.value("document.querySelector('.call-inside').innerText.includes('case: \"upper\"')")
    await page.press("c")
    assert await page.value(opened) == 0


async def test_what_any_tool_answers_ends_a_turn(web: Web, run: str, page: Page) -> None:
    response = reply("done")
    tool = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "a"}
    response["output"][:0] = [tool, {"type": "custom_tool_call_output", "call_id": "c", "output": "b"}]
    await web.store(rollout(run, 0, response=response))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.shows("done")
    assert await page.value("document.querySelectorAll('.turn').length") == 2


@pytest.mark.nightly
async def test_keys_lead_through_a_rollout_and_to_its_neighbours(web: Web, run: str, page: Page) -> None:
    await web.store(rollout(run, 0, 0, num_rollouts=2), rollout(run, 0, 1, num_rollouts=2))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.shows("task 0, rollout 0")
    await page.press("j")
    await page.until("document.activeElement.classList.contains('card')")
    await page.press("?")
    await page.until("document.querySelector('dialog').open")
    await page.press("Escape")
    await page.value("document.querySelector('dialog').close()")
    await page.press("/")
    await page.until("document.activeElement.type === 'search'")
    await page.press("]")
    await page.value("document.activeElement.blur()")
    assert "0/0" in await page.value("location.hash")
    await page.press("]")
    await page.shows("task 0, rollout 1")
    await page.press("[")
    await page.shows("task 0, rollout 0")
    await page.press("?")
    await page.until("document.querySelector('dialog').open")
    await page.value("history.back()")
    await page.shows("task 0, rollout 1")
    await page.until("!document.querySelector('dialog').open")


async def test_a_search_inside_a_rollout_finds_what_is_folded(web: Web, run: str, page: Page) -> None:
    response = reply(function_call("look", {"at": "x" * 300 + " needle"}), "no pin here")
    await web.store(rollout(run, 0, response=response))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.until("document.querySelectorAll('.part-link').length > 2")
    await page.press("/")
    search = "document.querySelector('.outline input')"
    await page.value(f"({search}.value = 'NEEDLE', {search}.dispatchEvent(new Event('input')))")
    await page.shows("1 found in 1 parts")
    await page.value("document.querySelector('.outline form').requestSubmit()")
    await page.until("document.querySelector('.turn details').open && CSS.highlights.get('found').size > 0")


async def test_a_judges_prompt_and_words_are_shown_as_such(web: Web, run: str, page: Page) -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "the same thing"}]}
    call = {"request": {"input": "are they equal?"}, "response": {"output": [said]}, "verdict_label": "[[A=B]]"}
    row = {"expected_answer": "4", "responses_create_params": {"input": "2 + 2?"}}
    verdict = {"extracted_answer": "four", "judge_evaluations": [call], "accuracy": 0.5}
    await web.store(rollout(run, 0, row=row, verdict=verdict))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.shows("the same thing")
    rows = "[...document.querySelectorAll('.gist')].map((row) => [...row.children].map((one) => one.innerText))"
    assert dict(await page.value(rows)) == {
        "prompt": "2 + 2?",
        "expected (expected_answer)": "4",
        "answer (extracted_answer)": "four",
        "verdict": "accuracy 0.5",
    }
    assert await page.value("document.querySelector('.judge').innerText.includes('verdict_label [[A=B]]')")
    await page.value("document.querySelector('.judge').open = true")
    await page.shows("are they equal?")


def response_of_turns(number: int) -> dict[str, Any]:
    """A reply of so many turns, each with a call, but the last."""
    items: list[Any] = []
    for at in range(number - 1):
        call = function_call("look", {"at": at})
        items += [call, {"type": "function_call_output", "call_id": call["call_id"], "output": f"shelf {at} " * 100}]
    return reply("done") | {"output": [*items, *reply("**all** seen")["output"]]}


# The pairs of boxes in the window that lie over each other, and none of which is inside the other or sticks to the top.
OVERLAPS = """(() => {
  const nodes = [...document.querySelectorAll('.top, .outline .filters, .part-link, .card, .turn-group > summary')];
  const seen = nodes.filter((node) => node.checkVisibility({ contentVisibilityAuto: true })).map((node) => {
    let { left, top, right, bottom } = node.getBoundingClientRect();
    const list = node.closest('.parts')?.getBoundingClientRect();
    if (list) [top, bottom] = [Math.max(top, list.top), Math.min(bottom, list.bottom)];
    return { node, left, top, right, bottom };
  }).filter(({ top, bottom }) => bottom > top);
  const isOver = (one, other) => one.left < other.right - 1 && other.left < one.right - 1
    && one.top < other.bottom - 1 && other.top < one.bottom - 1;
  return seen.flatMap((one, at) => seen.slice(at + 1).filter((other) => isOver(one, other)
    && !(one.node.matches('.top') && scrollY) && !one.node.contains(other.node))
    .map((other) => [one.node.textContent.slice(0, 40), other.node.textContent.slice(0, 40)]));
})()"""


@pytest.mark.nightly
@pytest.mark.parametrize("height", [700, 900, 1200])
async def test_no_two_boxes_of_a_long_rollout_overlap(web: Web, run: str, page: Page, height: int) -> None:
    lengths = (25, 60, 200)
    await web.store(*(rollout(run, task, response=response_of_turns(turns)) for task, turns in enumerate(lengths)))
    for task, turns in enumerate(lengths):
        for width in (1280, 400):
            await page.size(width, height)
            await page.open(f"{web.url}#/rollout/{run}/{task}/0")
            await page.until("document.querySelectorAll('.turn').length > 10")
            await page.value("document.querySelector('.outline').classList.add('open')")
            await page.rendered()
            assert await page.value(OVERLAPS) == [], (turns, width)
            await page.value("[...document.querySelectorAll('.turn-group')].forEach((one) => one.unfold())")
            await page.until(f"document.querySelectorAll('.turn').length === {turns}")
            entries = "document.querySelectorAll('.part-link')"
            await page.until(f"{entries}.length >= {turns} + 2")
            left = "(one) => one.getBoundingClientRect().left"
            assert await page.value(f"new Set([...{entries}].map({left})).size") == 1, (turns, width)
            assert await page.value(OVERLAPS) == [], (turns, width)


async def test_a_long_rollout_is_built_as_far_as_it_is_looked_at_and_what_leads_into_it_unfolds_it(
    web: Web, run: str, page: Page
) -> None:
    await web.store(rollout(run, 0, response=response_of_turns(200)))
    await page.size(1280, 900)
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.until("document.querySelectorAll('.turn').length === 20")
    groups = "[...document.querySelectorAll('.turn-group')]"
    assert await page.value(f"{groups}.filter((one) => one.open).length") == 2
    name = "Turns 11 to 20 look × 10"
    assert await page.value(f"{groups}[1].querySelector('summary').innerText.replace(/\\s+/g, ' ')") == name
    await page.rendered()
    # What is folded is not made, what is below the window is not rendered, and the browser lays neither out.
    assert await page.value("document.querySelectorAll('.turn').length") == 20
    assert await page.value("document.querySelectorAll('main *').length") < 1_000
    assert await page.value("getComputedStyle(document.querySelector('.turn')).contentVisibility") == "auto"
    assert await page.value("document.querySelectorAll('.turn .rich.pending').length") == 1
    await page.value("[...document.querySelectorAll('.turn')].at(-1).scrollIntoView()")
    await page.until("[...document.querySelectorAll('.turn')].at(-1).querySelector('strong') !== null")
    # A link leads into a folded group, and so does a search.
    await page.follow(f"#/rollout/{run}/0/0?turn=45")
    await page.until("document.activeElement.innerText.startsWith('Turn 45')")
    search = "document.querySelector('.outline input')"
    await page.value(f"({search}.value = 'shelf 120 ', {search}.dispatchEvent(new Event('input')))")
    await page.shows("found in 1 parts")
    await page.value("document.querySelector('.outline form').requestSubmit()")
    await page.until("document.activeElement.innerText.startsWith('Turn 121') && CSS.highlights.get('found').size > 0")
    # Keys lead to a folded group, which Enter opens, and from there to its turns.
    # What the search has unfolded may still be drawn, and moves what stands below.
    await page.until("window.heightBefore === (window.heightBefore = document.body.scrollHeight)")
    await page.value(f"{groups}[13].querySelector('summary').scrollIntoView()")
    await page.press("j")
    await page.until("document.activeElement.innerText.startsWith('Turns 141 to 150')")
    await page.press("Enter")
    await page.until(f"{groups}[14].open && {groups}[14].querySelectorAll('.turn').length === 10")
    await page.press("j")
    await page.until("document.activeElement.innerText.startsWith('Turn 141')")
    assert page.problems == []


@pytest.mark.nightly
async def test_recorded_calls_of_a_judge_are_shown_once_with_their_numbers(web: Web, run: str, page: Page) -> None:
    texts = {"request": {"input": "equal?"}, "response": {"output": [{"role": "assistant", "content": "<b>yes</b>"}]}}
    call = {"model": "judge", "label": "[[YES]]", "input_tokens": 1234, "output_tokens": 5, "seconds": 0.25, **texts}
    verdict = {"judge_calls": [call, call], "judge_input_tokens": 2468, "judge_output_tokens": 10}
    await web.store(rollout(run, 0, verdict={**verdict, "judge_evaluations": [texts, texts], "accuracy": 0.5}))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.shows("Judge, 2 calls")
    await page.shows("2,468 tokens in, 10 out")
    line = "document.querySelector('.judge summary').innerText.replace(/\\s+/g, ' ').trim()"
    assert await page.value(line) == "label [[YES]] judge · 1,234 in, 5 out · 0.25 s <b>yes</b>"
    assert await page.value("document.querySelectorAll('.judge').length") == 2
    chips = "[...document.querySelectorAll('.gist .chip')].map((chip) => chip.innerText)"
    assert await page.value(chips) == ["accuracy 0.5"]


@pytest.mark.nightly
async def test_criteria_are_a_list_and_a_row_without_an_answer_is_shown(web: Web, run: str, page: Page) -> None:
    verdict = {"met": {"is short": True, hostile(1): False}, "scores": {"tone": 0.5, "order": 1}}
    row = {"hint": "sun", "responses_create_params": {"input": "Explain it."}}
    await web.store(rollout(run, 0, row=row, verdict=verdict, reward=2 / 3))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.until("document.querySelectorAll('.criteria').length === 2")
    marks = "[...document.querySelectorAll('.criteria [role=img]')].map((one) => one.getAttribute('aria-label'))"
    assert await page.value(marks) == ["met", "not met"]
    numbers = "[...document.querySelectorAll('.criteria .number')].map((one) => one.textContent)"
    assert await page.value(numbers) == ["0.5", "1.0"]
    assert await page.value("document.querySelector('.reward').textContent") == "reward 0.667"
    assert await page.value("document.querySelector('.reward').classList.contains('partly')")
    rows = "[...document.querySelectorAll('.gist')].map((row) => [...row.children].map((one) => one.innerText))"
    assert dict(await page.value(rows))["row"] == '{hint: "sun"}'
    assert not await page.value("document.body.innerText.includes('other fields of the row')")
    await is_unharmed(page)


@pytest.mark.nightly
async def test_the_words_of_a_judge_stand_below_their_criteria(web: Web, run: str, page: Page) -> None:
    verdict = {
        "criteria": {"is short": True, "is kind": False},
        "reasons": {"is short": "Ten words.", "is kind": hostile(1)},
    }
    await web.store(rollout(run, 0, verdict=verdict))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.until("document.querySelectorAll('.criteria li').length === 2")
    found = await page.value("[...document.querySelectorAll('.criteria li')].map((one) => one.innerText)")
    assert found[0] == "✓ is short\nTen words."
    assert found[1].startswith("✗ is kind\n")
    names = "[...document.querySelectorAll('.gist dt')].map((one) => one.innerText)"
    assert "reasons" not in await page.value(names)
    await is_unharmed(page)


@pytest.mark.nightly
async def test_charts_have_whole_labels_and_leave_out_what_did_not_happen(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=2000)
    # Ten a millisecond: a throughput whose labels have five digits.
    at = [1.7e9 + 0.0001 * number for number in range(200)]
    await web.store(*(rollout(run, task, duration_s=1.0, started_at=at[task]) for task in range(200)))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=charts")
    await page.shows("Throughput")
    left = "[...document.querySelectorAll('svg.chart')].map((chart) => Math.min(...[...chart.querySelectorAll('.tick')]"
    assert min(await page.value(f"{left}.map((one) => one.getBBox().x)))")) >= 0
    assert not await page.value("document.body.innerText.includes('Truncated replies')")
    assert await page.value("document.body.innerText.includes('Mean reward so far')")


def write_run_with_changed_verifier(run: str) -> None:
    """Write a reward of `my_env.py` into this folder, and then another version of that file."""
    verifier, files = Path("my_env.py"), RunFiles(Path("runs/x.jsonl"))
    verifier.write_text("first")
    of = {"resources_server": {"name": "my_env"}}
    instances = [Instance("my_env", "resources", "my_env.py:Letters"), Instance("asker", "agents", "simple_agent", of)]
    files.output.parent.mkdir()
    files.output.write_text(json.dumps({"agent_ref": {"name": "asker"}}) + "\n")
    options = ["--resources", "my_env.py"]
    files.write_manifest(Manifest(run, "rows", "0", {}, "0", 2, record_instances(instances), score_with=options))
    verifier.write_text("second")


async def test_a_run_whose_files_are_here_names_the_commands_that_verify_it_again(
    web: Web, run: str, page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run_with_changed_verifier(run)
    await web.announce(run, num_rollouts=2)
    failed = {"failure_class": FailureClass.VERIFIER_FAILED, "stage": Stage.VERIFY, "message": "KeyError: 'bern'"}
    await web.store(rollout(run, 0), failure(run, 0, 1, **failed))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=failures")
    command = "gymq score --rollouts runs/x{0}.jsonl --output runs/x{0}_scored.jsonl --resources my_env.py"
    await page.shows(command.format("_failures"))
    await page.shows("1 reward is older than my_env.py")
    await page.shows(command.format(""))


@pytest.mark.nightly
async def test_no_table_of_a_run_is_cut_in_a_narrow_window(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=32, models=["a-model-with-a-name"])
    await web.store(*(rollout(run, 0, at, num_rollouts=16) for at in range(16)))
    await web.store(*(rollout(run, 1, at, agent="other", num_rollouts=16) for at in range(16)))
    await web.announce(f"{run}-b", num_rollouts=16, models=["a-model-with-a-name"])
    timings = [Timing(Stage.MODEL, 0.0, 1234.5)]
    await web.store(*(rollout(f"{run}-b", 0, at, num_rollouts=16, timings=timings) for at in range(16)))
    await web.profile()
    await page.size(400, 800)
    tabs = (f"run/{run}-b?tab=charts", f"run/{run}?tab=configuration")
    for view in (f"?text={run}", f"run/{run}", f"run/{run}?tab=rollouts", *tabs, f"compare/{run}/{run}-b"):
        await page.open(f"{web.url}#/{view}")
        await page.until("document.querySelectorAll('tbody tr').length > 0")
        await page.rendered()
        cut = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth)"
        assert await page.value(f"{cut}.length") == 0, view


async def test_log_lines_stay_text(web: Web, run: str, page: Page, tmp_path: Path) -> None:
    names = ("time", "level", "worker", "rollout", "message", "traceback")
    entry = {name: hostile(at) for at, name in enumerate(names)}
    (tmp_path / "w.log").write_text(json.dumps(entry) + "\n")
    async with Viewer(web.world.bus, "127.0.0.1", logs=tmp_path) as viewer:
        await page.open(f"{viewer.url}#/logs")
        await page.shows("window.hit=4")
        await page.value("document.querySelector('.log details').unfold()")
        for number in range(6):
            await page.until(f"document.querySelector('.log').textContent.includes('window.hit={number}')")
        await is_unharmed(page)


async def test_a_run_is_described_paused_resumed_and_cancelled_from_its_page(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=4)
    await web.store(rollout(run, 0))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=rollouts")
    press = "[...document.querySelectorAll('button')].find((one) => one.textContent.startsWith('{}')).click()"
    await page.shows("add a note or tags")
    await page.value(press.format("add a note"))
    await page.value("document.querySelector('.describe textarea').value = 'a note'")
    await page.value("document.querySelector('.describe input').value = 'one, two'")
    await page.value("document.querySelector('.describe').requestSubmit()")
    await page.until("[...document.querySelectorAll('.tag')].map((one) => one.textContent).join() === 'one,two'")
    names = "[...document.querySelectorAll('.actions button')].map((one) => one.textContent)"
    await page.until(f"{names}.includes('pause') && !{names}.includes('resume')")
    await page.value(press.format("pause"))
    await page.until("document.querySelector('.badge.paused') !== null")
    await page.until(f"{names}.includes('resume') && {names}.includes('cancel') && !{names}.includes('pause')")
    steering = await read_steering(web.world.bus, run)
    assert steering is not None
    assert steering.paused
    await page.value(press.format("resume"))
    await page.until("document.querySelector('.badge.paused') === null")
    await page.until(f"{names}.includes('pause') && !{names}.includes('resume')")
    await page.value(press.format("cancel"))
    await page.shows("Press again to cancel it")
    await page.value(press.format("cancel it"))
    await page.until("document.querySelector('.badge.cancelled') !== null")


@pytest.mark.nightly
async def test_several_runs_are_marked_and_compared(web: Web, run: str, page: Page) -> None:
    for name, reward in (("a", 0.0), ("b", 1.0), ("c", 0.5)):
        await web.announce(f"{run}{name}", num_rollouts=2)
        await web.store(*(rollout(f"{run}{name}", task, reward=reward) for task in range(2)))
    await web.profile()
    await page.open(f"{web.url}#/?text={run}&sort=run&order=up")
    await page.until("document.querySelectorAll('.runs input').length === 3")
    await page.value("document.querySelectorAll('.runs input').forEach((one) => one.click())")
    await page.value("[...document.querySelectorAll('a')].find((one) => one.textContent === 'compare 3').click()")
    await page.until("document.querySelectorAll('.difference').length === 2")
    values = "[...document.querySelectorAll('.difference .value')].map((one) => one.textContent)"
    assert await page.value(values) == ["+1.000", "+0.500"]
    assert await page.value("document.querySelectorAll('main section table tbody tr .dots').length") == 6


async def test_a_text_of_a_million_characters_is_shown_piece_by_piece(web: Web, run: str, page: Page) -> None:
    line = "word " * 20 + "**end**\n\n"
    await web.store(rollout(run, 0, text=line * (1_000_000 // len(line))))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    await page.until("document.querySelector('.turn strong') !== null")
    more = "[...document.querySelectorAll('.turn button')].find((one) => one.textContent.startsWith('show the other'))"
    assert await page.value("document.querySelector('.turn').textContent.length") < 30_000
    await page.value(f"{more}.click()")
    assert await page.value("document.querySelector('.turn').textContent.length") > 900_000
    assert await page.value("document.querySelectorAll('.chunk').length") > 40


@pytest.mark.nightly
async def test_rollouts_are_sorted_by_a_click_and_read_in_that_order(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=3)
    await web.store(rollout(run, 0), rollout(run, 1, reward=0.25), rollout(run, 2, reward=0.5))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=rollouts")
    await page.until("document.querySelectorAll('.rollouts tbody tr').length === 3")
    await page.value("[...document.querySelectorAll('th a')].find((one) => one.textContent === 'reward').click()")
    first = "document.querySelector('.rollouts tbody tr a')"
    await page.until(f"document.querySelector('th[aria-sort=ascending]') && {first}.textContent === '1 / 0'")
    await page.press("j")
    await page.until(f"document.activeElement === {first}")
    await page.value("document.activeElement.click()")
    await page.until("document.querySelector('a[rel=next]') !== null")
    await page.press("]")
    await page.shows("task 2, rollout 0")
    await page.until("document.querySelector('.reading').innerText.includes('2 of 3')")


CHOOSE = "[...document.querySelectorAll('.menu label')].find((one) => one.textContent.trim() === {!r}).click()"
HEADS = "[...document.querySelectorAll('.rollouts th')].map((one) => one.textContent.replace(/ [↑↓]$/, ''))"


@pytest.mark.nightly
async def test_columns_are_chosen_by_keys_and_stay_chosen(web: Web, run: str, page: Page) -> None:
    row = {"level": "hard", "responses_create_params": {"input": "?"}}
    for task, accuracy in enumerate([0.25, 1.0, 0.5]):
        verdict = {"accuracy": accuracy, "parts": {"style": "good"}, "log": [1, 2]}
        await web.store(rollout(run, task, row=row, verdict=verdict, worker="w1"))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=rollouts")
    await page.until("document.querySelectorAll('.rollouts tbody tr').length === 3")
    assert await page.value(HEADS) == ["rollout", "prompt", "expected", "answer", "reward", "turns", "tokens", "time"]
    await page.value("document.querySelector('.menu summary').focus()")
    await page.press("Enter")
    await page.until("document.querySelector('.menu').open")
    offered = (
        "[...document.querySelectorAll('.menu fieldset:nth-child(n+2) label')].map((one) => one.textContent.trim())"
    )
    assert await page.value(offered) == ["verdict.accuracy", "verdict.log", "verdict.parts.style", "row.level"]
    list_box = "document.querySelector('.menu-list').getBoundingClientRect()"
    assert await page.value(f"{list_box}.left >= 0 && {list_box}.right <= innerWidth")
    await page.press("Tab")
    assert await page.value("document.activeElement.parentElement.textContent.trim()") == "prompt"
    await page.press(" ")
    for name in ("expected", "turns", "verdict.accuracy", "verdict.log", "row.level", "worker"):
        await page.value(CHOOSE.format(name))
    await page.press("Escape")
    await page.until("!document.querySelector('.menu').open && document.activeElement.matches('.menu summary')")
    await page.open(f"{web.url}#/run/{run}?tab=rollouts&sort=verdict.accuracy&order=down")
    await page.until("document.querySelectorAll('.rollouts tbody tr').length === 3")
    names = ["rollout", "answer", "reward", "tokens", "time", "worker", "verdict.accuracy", "verdict.log", "row.level"]
    assert await page.value(HEADS) == names
    cells = "[...document.querySelectorAll('.rollouts tbody tr')].map((row) => [...row.cells].slice(-4)"
    assert await page.value(f"{cells}.map((one) => one.textContent))") == [
        ["w1", "1.00", "[2]", "hard"],
        ["w1", "0.50", "[2]", "hard"],
        ["w1", "0.25", "[2]", "hard"],
    ]
    await page.value("document.querySelector('.menu button').click()")
    await page.until(f"{HEADS}.join() === 'rollout,prompt,expected,answer,reward,turns,tokens,time'")
    assert page.problems == []


async def test_names_of_columns_stay_text(web: Web, run: str, page: Page) -> None:
    name = hostile(1)[:70]
    verdict = {name: hostile(2)[:70], "__proto__": {"constructor": "c"}, "deep": {"a": {"b": {"c": 1}}}}
    await web.store(rollout(run, 0, verdict=verdict))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=rollouts")
    await page.until("document.querySelectorAll('.menu fieldset:nth-child(2) label').length === 3")
    await page.value("document.querySelectorAll('.menu fieldset:nth-child(2) input').forEach((one) => one.click())")
    await page.until("document.querySelector('.rollouts').textContent.includes('window.hit=2')")
    assert f"verdict.{name}" in await page.value(HEADS)
    assert {"verdict.__proto__.constructor", "verdict.deep.a.b"} <= set(await page.value(HEADS))
    await page.value(
        "[...document.querySelectorAll('.rollouts th a')].find((one) => one.textContent.includes('hit=1')).click()"
    )
    await page.until("document.querySelector('.rollouts th[aria-sort]')?.textContent.includes('window.hit=1')")
    await is_unharmed(page)


@pytest.mark.nightly
async def test_filters_are_behind_a_button_in_a_narrow_window(web: Web, run: str, page: Page) -> None:
    await web.store(*(rollout(run, task) for task in range(3)))
    await web.profile()
    await page.size(400)
    await page.open(f"{web.url}#/run/{run}?tab=rollouts")
    await page.until("document.querySelectorAll('.rollouts tbody tr').length === 3")
    field = "document.querySelector('input[name=task]').checkVisibility()"
    assert await page.value(field) is False
    assert await page.value("document.querySelector('.filters').getBoundingClientRect().height") < 120
    unfold = "document.querySelector('button[aria-controls=more-filters]')"
    await page.value(f"{unfold}.click()")
    assert await page.value(f"{unfold}.getAttribute('aria-expanded')") == "true"
    assert await page.value(field) is True
    await page.value("document.querySelector('input[name=task]').value = '1'")
    await page.value("document.querySelector('form.filters').requestSubmit()")
    await page.until("document.querySelectorAll('.rollouts tbody tr').length === 1")
    assert await page.value(f"{unfold}.textContent") == "filters (1)"
    assert await page.value(field) is True
    await page.size(1280)
    assert await page.value(f"{unfold}.checkVisibility()") is False
    assert await page.value(field) is True


@pytest.mark.nightly
async def test_a_comparison_shows_the_keys_in_which_the_configurations_differ(web: Web, run: str, page: Page) -> None:
    names = [run, f"{run}b", f"{run}c"]
    for number, name in enumerate(names):
        options = {"temperature": number / 2, "openai_model": "m"}
        worker = RecordedInstance("models", "openai_model", options, "0" * 64 if number < 2 else "1" * 64)
        configuration = encode_configuration(
            {"num_repeats": 4, "limit": 9} if number else {"num_repeats": 4}, {"policy": worker}
        )
        await web.announce(name, num_rollouts=1, configuration=configuration)
        await web.store(rollout(name, 0))
    await web.profile()
    await page.open(f"{web.url}#/compare/{names[0]}/{names[1]}?more={names[2]}")
    await page.shows("3 keys differ")
    table = "[...document.querySelectorAll('.differences tbody tr')].map((row) => [...row.cells]"
    assert await page.value(f"{table}.map((one) => one.textContent))") == [
        ["policy (code)", "0" * 12, "0" * 12, "1" * 12],
        ["policy.temperature", "0.0", "0.5", "1.0"],
        ["limit", "not set", "9", "9"],
    ]
    changed = "[...document.querySelectorAll('.differences .changed')].map((one) => one.textContent)"
    assert await page.value(changed) == ["1" * 12, "0.5", "1.0", "9", "9"]
    await web.announce(names[0], num_rollouts=1)
    await page.open(f"{web.url}#/compare/{names[0]}/{names[1]}")
    await page.shows(f"no configuration is stored with {names[0]}")


@pytest.mark.nightly
async def test_the_configuration_is_shown_as_coloured_yaml(web: Web, run: str, page: Page) -> None:
    worker = RecordedInstance(
        "models", "openai_model", {"openai_model": "m", "extra_body.top_k": 3, "openai_api_key": "****"}
    )
    configuration = encode_configuration({"input": "rows.jsonl", "prompt.user": "one\ntwo"}, {"policy_model": worker})
    await web.announce(run, num_rollouts=1, configuration=configuration)
    await web.store(rollout(run, 0))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=configuration")
    await page.until("document.querySelectorAll('.yaml .named').length > 5")
    texts = "[...document.querySelectorAll('.yaml .code')].map((one) => one.textContent)"
    assert await page.value(texts) == [
        "input: rows.jsonl\nprompt:\n  user: |-\n    one\n    two\n",
        "policy_model:\n  responses_api_models:\n    openai_model:\n      openai_model: m\n"
        "      extra_body:\n        top_k: 3\n      openai_api_key: '****'\n",
    ]
    await web.announce(f"{run}x", num_rollouts=1)
    await web.store(rollout(f"{run}x", 0))
    await page.open(f"{web.url}#/run/{run}x?tab=configuration")
    await page.shows("No configuration is stored with this run")


async def test_a_failed_rollout_is_requeued_from_its_page(web: Web, run: str, page: Page) -> None:
    await web.store(failure(run, 0))
    await page.open(f"{web.url}#/rollout/{run}/0/0")
    button = "[...document.querySelectorAll('.reading button')].find((one) => one.textContent === 'try again')"
    await page.until(f"{button} !== undefined")
    await page.value(f"{button}.click()")
    await page.shows("It is not requeued: its failure is not among the dead letters")


@pytest.mark.nightly
async def test_back_leads_to_where_the_reader_was(web: Web, run: str, page: Page) -> None:
    await web.store(*(rollout(run, task) for task in range(50)))
    await web.profile()
    await page.size(1280, 600)
    await page.open(f"{web.url}#/run/{run}?tab=rollouts")
    await page.until("document.querySelectorAll('.rollouts tbody tr').length === 50")
    await page.value("scrollTo(0, 700)")
    await page.value("document.querySelectorAll('.rollouts tbody a')[30].click()")
    await page.shows("task 30, rollout 0")
    assert await page.value("scrollY") == 0
    await page.value("history.back()")
    await page.until("document.querySelectorAll('.rollouts tbody tr').length === 50 && scrollY === 700")


@pytest.mark.nightly
async def test_tasks_without_variance_stand_out(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=4)
    await web.store(rollout(run, 0, 0), rollout(run, 0, 1), rollout(run, 1, 0, reward=0.0), rollout(run, 1, 1))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=tasks")
    await page.shows("1 of 2 tasks (50.0 %) have the same reward")
    assert await page.value("document.querySelector('tr.uniform').innerText.includes('no variance')")
    dots = "[...document.querySelectorAll('.dot')].map((one) => one.className.split(' ').at(-1))"
    assert await page.value(dots) == ["grade4", "grade4", "grade0", "grade4"]


@pytest.mark.nightly
async def test_a_comparison_leads_from_difference_to_difference(web: Web, run: str, page: Page) -> None:
    for task, (left, right) in enumerate([(0.0, 1.0), (1.0, 0.0), (0.5, 0.25)]):
        await web.store(rollout(run, task, reward=left), rollout(f"{run}x", task, reward=right))
    for name in (run, f"{run}x"):
        await web.announce(name)
    await web.profile()
    await page.open(f"{web.url}#/compare/{run}/{run}x")
    await page.shows("better in 1, worse in 2, equal in 0 of 3 tasks")
    assert "-0.083" in await page.value("document.querySelector('.paired .value').textContent")
    await page.value("document.querySelector('main section table tbody a[href*=\"/1/0\"]').click()")
    await page.shows("difference -1")
    await page.press("]")
    await page.shows("difference -0.25")
    assert f"compare/{run}/{run}x/2/0" in await page.value("location.hash")
