"""What the recorded cases cannot say: first submissions, hostile expressions, outages, sessions, settings."""

import importlib
import json
import sys

import pytest
from aiohttp import web
from gymq.workers.resources.aviary.worker import Environments

import gymq
from gymq.testing import Harness, prompt, reply

pytest.importorskip("aviary.envs.gsm8k", reason='needs pip install "gymq[aviary]"')
episode = importlib.import_module("gymq.workers.resources.aviary.episode")
environments = importlib.import_module("gymq.workers.resources.aviary.environments")

PROBLEMS = [{"question": "3 * 6?", "answer": 18}, {"question": "[1, 2]", "answer": 3}]
GSM8K = {"env": "gsm8k", "problems": PROBLEMS}
HOTPOTQA = {"env": "hotpotqa", "problems": [{"question": "Which river?", "answer": "The River Bar"}]}
ROW = {"task_idx": 0, "responses_create_params": {"input": []}}


def call(name, arguments, call_id="c"):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


def submit(answer, call_id="c"):
    return call("submit_answer", {"answer": answer}, call_id)


async def steps(env, *actions, row=ROW):
    """The answers to steps in a fresh session, and the reward in the end."""
    session = await env.session(row)
    answers = []
    for action in actions:
        result = await session.call("step", {"action": action})
        assert result.status == 200, result.output
        answers.append(json.loads(result.output))
    return answers, (await session.verify(row, reply("done"))).reward


async def test_the_first_submission_of_a_step_is_the_only_one_that_pays():
    async with Harness(Environments, GSM8K) as env:
        guesses = [submit("17", "a"), submit("18", "b"), submit("18", "c"), call("calculator", {"expr": "x"}, "d")]
        (answer,), reward = await steps(env, guesses)
        assert (await steps(env, [submit("18", "a"), submit("18", "b")]))[1] == 1.0
    assert reward == answer["reward"] == 0.0
    assert answer["done"]
    outputs = [(item["call_id"], item["output"]) for item in answer["obs"]]
    assert outputs == [("a", "False"), ("b", episode.OVER), ("c", episode.OVER), ("d", episode.OVER)]


@pytest.mark.parametrize(
    ("options", "said"), [(GSM8K, ["True", ""]), (HOTPOTQA, ["Invalid tool call: browse", "Finished."])]
)
async def test_an_unknown_tool_beside_a_known_one_costs_nothing(options, said):
    right = {"gsm8k": "18", "hotpotqa": "river Bar"}[options["env"]]
    async with Harness(Environments, options) as env:
        (answer,), reward = await steps(env, [call("browse", {}, "a"), submit(right, "b")])
    assert reward == 1.0
    assert [item["output"] for item in answer["obs"]] == said


class TaskServer:
    """Aviary's protocol: one environment, whose tool adds its argument to the reward until that is 3."""

    def __init__(self):
        self.requests = []
        self.total = 0

    async def handle(self, request):
        path = request.match_info["path"]
        if request.headers.get("X-API-Key") != "secret":
            return web.Response(status=403)
        body = await request.json() if request.method == "POST" else {}
        self.requests.append((path, body.get("task_idx"), body.get("env_id")))
        answers = {"info": lambda _: {"dataset_size": 2}, "start": lambda _: {"env_id": "e1"}, "close": lambda _: {}}
        return web.json_response((answers | {"reset": self.reset, "step": self.step})[path](body))

    def reset(self, _):
        info = {
            "name": "add",
            "description": "Add.",
            "parameters": {"type": "object", "properties": {}, "required": []},
        }
        return [[{"role": "user", "content": "Reach 3."}], [{"type": "function", "info": info}]]

    def step(self, body):
        (tool_call,) = body["action"]["tool_calls"]
        number = json.loads(tool_call["function"]["arguments"])["n"]
        self.total += number
        said = {"role": "tool", "name": "add", "tool_call_id": tool_call["id"], "content": str(self.total)}
        return [[said], number, self.total >= 3, False]


@pytest.fixture
async def served():
    server, app = TaskServer(), web.Application()
    app.router.add_route("*", "/{path}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield server, {"env": "client", "server_url": f"http://127.0.0.1:{runner.addresses[0][1]}", "api_key": "secret"}
    await runner.cleanup()


async def test_environments_of_another_machine_are_stepped_there(served):
    server, options = served
    async with Harness(Environments, options) as env:
        session = await env.session(ROW | {"task_idx": 1})
        first = json.loads((await session.call("reset", {})).output)
        steps = [json.loads((await session.call("step", {"action": [call("add", {"n": n})]})).output) for n in (1, 2)]
        verdict = await session.verify(ROW, reply("3"))
        with pytest.raises(gymq.InvalidTask, match="2 tasks"):
            await env.session(ROW | {"task_idx": 2})
    assert (first["obs"][0]["content"], first["tools"][0]["name"]) == ("Reach 3.", "add")
    assert [(step["obs"][0]["output"], step["reward"], step["done"]) for step in steps] == [
        ("1", 1.0, False),
        ("3", 2.0, True),
    ]
    assert verdict.reward == 3.0
    assert server.requests == [
        ("info", None, None),
        ("start", 1, None),
        ("reset", None, "e1"),
        ("step", None, "e1"),
        ("step", None, "e1"),
        ("close", None, "e1"),
    ]


async def test_a_server_that_is_gone_is_a_failure_and_no_zero(served):
    server, options = served
    async with Harness(Environments, options) as env:
        server.reset = None
        with pytest.raises(gymq.ComponentFailed):
            await env.session(ROW)


async def test_a_server_that_refuses_is_named_at_the_start(served):
    with pytest.raises(gymq.OptionsError, match=r"server_url .*403"):
        async with Harness(Environments, served[1] | {"api_key": "wrong"}):
            pass


@pytest.mark.parametrize("options", [{"env": "client"}, GSM8K | {"server_url": "http://127.0.0.1:9"}])
def test_a_server_goes_with_the_env_client_only(options):
    with pytest.raises(gymq.OptionsError, match="server_url"):
        Environments(options)


@pytest.mark.parametrize("first", [submit("17"), call("calculator", {"expr": "x"}), call("browse", {})])
async def test_after_the_end_no_step_counts(first):
    async with Harness(Environments, GSM8K) as env:
        (one, two), reward = await steps(env, [first], [submit("18")])
    assert one["done"]
    assert (two["reward"], two["done"], reward) == (0.0, True, one["reward"])


@pytest.mark.parametrize(
    "arguments",
    [{}, {"answer": None}, {"answer": ["18"]}, {"result": "18"}, {"answer": "18", "sure": True}, {"answer": "1_8 "}],
    ids=str,
)
async def test_a_call_that_does_not_fit_its_tool_is_a_tool_failure(arguments):
    async with Harness(Environments, GSM8K) as env:
        (answer,), reward = await steps(env, [call("submit_answer", arguments)])
    expected = 1.0 if arguments.get("answer") == "1_8 " else -1.0  # a float in Python's sense
    assert (reward, answer["done"], answer["obs"][0]["call_id"]) == (expected, True, "c")


@pytest.mark.parametrize("arguments", ["{", "", "[]", "5", "null", '"18"', "[" * 100_000])
async def test_arguments_that_are_no_object_cost_nothing(arguments):
    async with Harness(Environments, GSM8K) as env:
        (first, second), reward = await steps(env, [call("submit_answer", arguments)], [submit("18")])
    assert first == {
        "obs": [{"type": "message", "role": "user", "content": episode.NO_JSON}],
        "reward": 0.0,
        "done": False,
    }
    assert (second["done"], reward) == (True, 1.0)


async def test_an_unknown_tool_beside_a_known_one_is_free_and_no_call_at_all_is_not():
    async with Harness(Environments, GSM8K) as env:
        (answer,), reward = await steps(env, [call("browse", {}, "a"), call("calculator", {"expr": "3*6"}, "b")])
        assert [(item["call_id"], item["output"]) for item in answer["obs"]] == [("b", "18"), ("a", "")]
        assert (reward, answer["done"]) == (0.0, False)
        (answer,), reward = await steps(env, [])
        assert (reward, answer["done"], answer["obs"][0]["role"]) == (-1.0, True, "user")


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "9**9**7",
        "(-9)**(9**9)",
        "*".join(["9**3000"] * 9),
        "round(5, -10**10)",
        "1e308*10",
        "(-8)**0.5",
        "1/0",
        "(" * 5000,
        "1" * 5000,
        "1+" * 20_000 + "1",
        "__import__('os')",
        "[1]*10",
        "1<2",
        "min",
    ],
    ids=lambda text: text[:20],
)
async def test_a_calculation_that_cannot_be_done_ends_soon_as_a_tool_failure(expression):
    async with Harness(Environments, GSM8K) as env:
        (answer,), reward = await steps(env, [call("calculator", {"expr": expression})])
    assert (reward, answer["done"]) == (-1.0, True)
    assert answer["obs"][0]["output"].startswith("Error using calculator")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (" 2**10 ", "1024"),
        ("7 // 2 + 7 % 4", "6"),
        ("max(1, 2.5)", "2.5"),
        ("round(2.567, 1)", "2.6"),
        ("-abs(-4.0)", "-4"),
    ],
)
async def test_the_calculator_calculates(expression, value):
    async with Harness(Environments, GSM8K) as env:
        (answer,), reward = await steps(env, [call("calculator", {"expr": expression})])
    assert (answer["obs"][0]["output"], reward, answer["done"]) == (value, 0.0, False)


async def test_reset_tells_observations_and_tools_and_a_question_that_looks_like_json_stays_text():
    async with Harness(Environments, GSM8K) as env:
        session = await env.session(ROW | {"task_idx": 1})
        reset = json.loads((await session.call("reset", {})).output)
    assert reset["obs"] == [{"type": "message", "role": "user", "content": "[1, 2]"}]
    assert [tool["name"] for tool in reset["tools"]] == ["calculator", "submit_answer"]
    calculator = reset["tools"][0]
    assert calculator["strict"]
    assert calculator["parameters"]["required"] == ["expr"]
    assert calculator["parameters"]["additionalProperties"] is False
    assert "mathematical expression" in calculator["description"]


def test_parts_become_messages_and_environment_states_are_marked():
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "text", "text": "b"},
    ]
    given = [episode.Message(content=parts), episode.Message(content="now", info={"is_env_state": True})]
    items = episode.observations(given)
    assert [item["content"] for item in items] == ["a", "b", "now"]
    assert [item.get("is_env_state") for item in items] == [None, None, True]


async def test_sessions_are_apart_and_a_closed_one_keeps_what_was_earned():
    async with Harness(Environments, GSM8K) as env:
        one, two = await env.session(ROW), await env.session(ROW)
        await one.call("step", {"action": [submit("18")]})
        assert json.loads((await one.call("close", {"env_id": "another"})).output)["success"] is False
        assert json.loads((await one.call("close", {})).output)["success"] is True
        assert json.loads((await one.call("close", {})).output)["success"] is False
        assert (await one.call("step", {"action": [submit("18")]})).status == 400
        rewards = [(await session.verify(ROW, reply("done"))).reward for session in (one, two)]
        unknown = await one.verify(ROW, reply("done") | {"env_id": "another"})
    assert (rewards, unknown.reward) == ([1.0, 0.0], 0.0)


async def test_a_response_of_states_after_each_step_is_verified_like_a_flat_one():
    async with Harness(Environments, GSM8K) as env:
        session = await env.session(ROW)
        await session.call("step", {"action": [submit("18")]})
        first, *_ = reply("a")["output"]
        states = reply() | {"contains_transitions": True, "output": [[first], [first, *reply("b")["output"]], []]}
        assert (await session.verify(ROW, states)).reward == 1.0
        for wrong, where in (([[{"type": "message"}]], r"output\[0\]\[0\]"), ([[], first], r"output\[1\]")):
            with pytest.raises(gymq.InvalidTask, match=where):
                await session.verify(ROW, states | {"output": wrong})
        with pytest.raises(gymq.InvalidTask, match=r"output\[0\]"):
            await session.verify(ROW, states | {"contains_transitions": False})


async def test_a_session_without_an_environment_earned_nothing_and_can_be_seeded_later():
    async with Harness(Environments, GSM8K) as env:
        session = await env.session(None)
        assert (await session.call("step", {"action": []})).status == 400
        assert json.loads((await session.call("close", {})).output)["success"] is False
        assert (await session.verify(ROW, reply("done"))).reward == 0.0
        await session.seed(ROW)
        assert (await session.call("step", {"action": [submit("18")]})).status == 200
        assert (await session.verify(ROW, reply("done"))).reward == 1.0


@pytest.mark.parametrize(
    "action", [None, "x", [1], [{"name": "submit_answer"}], [{**submit("1"), "arguments": {}}]], ids=str
)
async def test_an_action_that_is_no_list_of_calls_is_refused(action):
    async with Harness(Environments, GSM8K) as env:
        assert (await (await env.session(ROW)).call("step", {"action": action})).status == 422


@pytest.mark.parametrize("index", [2, -1, "x", None])
async def test_a_task_that_does_not_exist_is_refused(index):
    async with Harness(Environments, GSM8K) as env:
        with pytest.raises(gymq.InvalidTask, match="task_idx"):
            await env.session({"task_idx": index})


async def test_settings_of_the_environment_are_used_and_checked():
    async with Harness(Environments, GSM8K | {"env_config": {"correct_reward": 5, "done_on_failure": False}}) as env:
        (first, _), reward = await steps(env, [call("calculator", {"expr": "x"})], [submit("18")])
    assert (first["done"], reward) == (False, 4.0)
    with pytest.raises(gymq.OptionsError, match="corect_reward"):
        await Environments(GSM8K | {"env_config": {"corect_reward": 5}}).start()
    with pytest.raises(gymq.OptionsError, match=r"NumberProblem.*answer"):
        await Environments({"env": "gsm8k", "problems": [{"question": "?"}]}).start()
    with pytest.raises(gymq.OptionsError, match=r"NumberProblem.*answer"):
        await Environments({"env": "gsm8k", "problems": [{"question": "?", "answer": "many"}]}).start()


PAGE = "<p>The Foo bridge stands in Baz. It is old.</p><p>Baz lies on the Bar, a long river.</p><p>No more.</p>"


async def test_hotpotqa_searches_looks_up_and_counts_the_first_answer():
    async with Harness(Environments, HOTPOTQA) as env:
        env.author.pages = {"Foo+bridge": PAGE}
        answers, reward = await steps(
            env,
            [call("search", {"entity": "Foo bridge"}, "a"), call("lookup", {"keyword": "bar"}, "b")],
            [call("fly", {})],
            [call("lookup", {"word": "bar"})],
            [submit("It is the river Bar", "a"), submit("The River Bar", "b")],
        )
    assert [item["output"] for item in answers[0]["obs"]] == [
        "The Foo bridge stands in Baz. It is old.. Baz lies on the Bar, a long river..",
        "(Result 1 / 1) Baz lies on the Bar, a long river.",
    ]
    assert answers[1]["obs"][0]["output"] == "Invalid tool call: fly"
    assert [(answer["reward"], answer["done"]) for answer in answers] == [(0.0, False)] * 3 + [(1.0, True)]
    assert reward == 1.0


async def test_wikipedia_out_of_reach_is_a_failure_and_no_zero(monkeypatch):
    async def unreachable(*_args, **_kwargs):
        raise episode.httpx.ConnectError("no route")

    monkeypatch.setattr("aviary.envs.hotpotqa.env.fetch_with_retry", unreachable)
    async with Harness(Environments, HOTPOTQA) as env:
        session = await env.session(ROW)
        with pytest.raises(gymq.ComponentFailed, match="ConnectError"):
            await session.call("step", {"action": [call("search", {"entity": "Foo"})]})


def test_the_oldest_pages_are_forgotten(monkeypatch):
    monkeypatch.setattr(environments, "MAX_PAGES", 2)
    pages = environments.PageCache()
    for key in "abc":
        pages[key] = "page"
    assert list(pages) == ["b", "c"]


async def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "gymq.workers.resources.aviary.environments")
    monkeypatch.delattr("gymq.workers.resources.aviary.environments")
    monkeypatch.setitem(sys.modules, "aviary.core", None)
    with pytest.raises(gymq.OptionsError, match=r'aviary.core is not installed: pip install "gymq\[aviary\]"'):
        await Environments(GSM8K | {"env_config": {"correct_reward": 5}}).start()
    monkeypatch.setitem(sys.modules, "aviary", None)
    with pytest.raises(gymq.OptionsError, match=r'aviary is not installed: pip install "gymq\[aviary\]"'):
        await Environments(GSM8K).start()


def test_a_row_needs_no_parameters():
    assert Environments(GSM8K).parse_row({"task_idx": "1"}).responses_create_params == {"input": []}
    assert Environments(GSM8K).parse_row(ROW | prompt("Think.")).task_idx == 0
