"""What becomes of the model calls that a program makes through the gateway."""

import json
import sys
from collections import Counter

import openai
import pytest

import gymq
from gymq.ext.gateway import Capture, Gateway
from gymq.protocol.messages import Generate
from gymq.sandbox import Subprocess
from gymq.testing import reply
from tests.support.asking_program import PROGRAM
from tests.workers.agents.script import Script, agent, rollout, said
from tests.workers.agents.swe import needs_docker


def with_tokens(response, prompt, sampled):
    response["output"][-1] |= {
        "prompt_token_ids": prompt,
        "generation_token_ids": sampled,
        "generation_log_probs": [-0.5] * len(sampled),
    }
    return response


def user(text):
    return {"type": "message", "role": "user", "content": text}


def conversation(*texts):
    """Items in turn of the user and the model."""
    return [
        user(text) if index % 2 == 0 else {"type": "message", "role": "assistant", "content": text}
        for index, text in enumerate(texts)
    ]


async def captured(*exchanges):
    """A capture of calls, each an input and a reply."""
    script = Script(*(answer for _, answer in exchanges))
    capture = Capture(rollout(script, agent()))
    for asked, _ in exchanges:
        await capture.ask({"input": asked})
    return capture


async def test_calls_that_continue_one_another_are_one_conversation():
    first = (conversation("q1"), with_tokens(reply("a1"), [1, 2], [3]))
    second = (conversation("q1", "a1", "q2"), with_tokens(reply("a2"), [1, 2, 3, 4], [5]))
    found = (await captured(first, second)).conversation()
    assert found.prompt == conversation("q1")
    assert [item["content"] if item["role"] == "user" else item["content"][0]["text"] for item in found.output] == [
        "a1",
        "q2",
        "a2",
    ]
    assert [list(item["generation_token_ids"]) for item in found.output if "generation_token_ids" in item] == [[3], [5]]
    assert (found.branches, found.masked) == ([], False)


async def test_a_conversation_of_a_helper_is_a_branch_and_the_sample_is_masked():
    main = (conversation("q1"), with_tokens(reply("a1"), [1, 2], [3, 3, 3]))
    helper = (conversation("other"), with_tokens(reply("b1"), [9], [8]))
    found = (await captured(main, helper)).conversation()
    assert len(found.output) == 1
    assert [list(branch[0]["generation_token_ids"]) for branch in found.branches] == [[8]]
    assert found.masked


async def test_calls_for_a_title_are_beside_the_conversation_and_sub_agents_are_branches():
    tool = {"type": "function", "name": "bash", "parameters": None, "strict": None}
    script = Script(*(reply(text) for text in ("Title", "a1", "b1", "a2")))
    capture = Capture(rollout(script, agent()))
    await capture.ask({"input": conversation("q1")})
    for asked in (conversation("q1"), conversation("other"), conversation("q1", "a1", "q2")):
        await capture.ask({"input": asked, "tools": [tool], "user": "session 7"})
    found = capture.conversation()
    assert (found.num_side_calls, len(found.branches), found.masked) == (1, 1, False)
    assert [item["content"] if item["role"] == "user" else item["content"][0]["text"] for item in found.output] == [
        "a1",
        "q2",
        "a2",
    ]
    assert found.fields({})["side_calls"] == 1
    assert all("user" not in request.params for request in script.of(Generate))


async def test_a_text_and_a_list_with_that_text_continue_the_same_conversation():
    first = (conversation("q1"), reply("a1"))
    parts = [{"type": "input_text", "text": "q1"}]
    second = ([{**user(""), "content": parts}, *conversation("q1", "a1", "q2")[1:]], reply("a2"))
    found = (await captured(first, second)).conversation()
    assert (found.branches, len(found.output)) == ([], 3)


def no_room(**more):
    """What models answer when a conversation does not fit into their context."""
    return reply("") | {"incomplete_details": {"reason": "max_output_tokens"}, **more}


async def test_a_conversation_that_outgrows_the_context_is_told_and_loses_no_tokens():
    first = (conversation("q1"), with_tokens(reply("a1"), [1, 2], [3]))
    capture = await captured(first, (conversation("q1", "a1", "q2"), no_room()))
    assert capture.context_is_full
    found = capture.conversation()
    assert [list(item["generation_token_ids"]) for item in found.output] == [[3]]
    assert not found.masked


@pytest.mark.parametrize(
    "response",
    [
        reply(""),
        reply("I") | {"incomplete_details": {"reason": "max_output_tokens"}},
        no_room(incomplete_details={"reason": "content_filter"}),
        no_room(usage={"input_tokens": 5, "output_tokens": 9, "total_tokens": 14}),
        no_room(output=[{"type": "reasoning", "id": "r", "summary": []}]),
    ],
)
async def test_other_replies_that_say_little_are_no_overflow_of_the_context(response):
    assert not (await captured((conversation("q1"), response))).context_is_full


async def test_a_program_that_makes_room_continues():
    capture = await captured((conversation("q1", "a1", "q2"), no_room()), (conversation("q3"), reply("a3")))
    assert not capture.context_is_full


async def test_without_tokens_all_calls_are_one_conversation():
    found = (await captured((conversation("q1"), reply("a1")), (conversation("q1", "a1", "q2"), said()))).conversation()
    assert len(found.output) == 3
    assert found.notes is None


def many_turns(num_turns):
    """Exchanges of one conversation, each with items of its own, as they are read from a body."""
    texts = [f"text {number}" for number in range(2 * num_turns)]
    return [(conversation(*texts[:end]), said(texts[end])) for end in range(1, 2 * num_turns, 2)]


async def test_each_item_of_a_conversation_is_kept_once():
    capture = await captured(*many_turns(20))
    assert capture.calls[-1].input == many_turns(20)[-1][0]
    assert len({id(item) for call in capture.calls for item in call.input}) == len(capture.calls[-1].input)


async def test_the_work_of_a_conversation_grows_with_its_items():
    async def num_calls(num_turns):
        capture = await captured(*many_turns(num_turns))
        events: Counter[str] = Counter()
        sys.setprofile(lambda frame, event, argument: events.update([event]))
        try:
            found = capture.conversation()
        finally:
            sys.setprofile(None)
        assert len(found.output) == 2 * num_turns - 1
        return events["call"] + events["c_call"]

    assert await num_calls(80) < 2.5 * await num_calls(40)


async def test_the_rows_sampling_parameters_win_over_the_programs():
    script = Script(said())
    row = {"responses_create_params": {"input": "?", "temperature": 0.25}}
    capture = Capture(rollout(script, agent(), row))
    await capture.ask({"input": [user("?")], "temperature": 1.0, "top_p": 0.5})
    (asked,) = script.of(Generate)
    params = asked.params
    assert (params["temperature"], params["top_p"]) == (0.25, 0.5)


async def test_a_program_that_never_asked_has_no_conversation():
    with pytest.raises(gymq.RolloutError, match="without asking the model"):
        Capture(rollout(Script(said()), agent())).conversation()


async def test_a_model_that_cannot_be_asked_ends_the_program_and_is_the_reason():
    capture = Capture(
        rollout(Script(gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "out of memory", retryable=False)), agent())
    )
    async with Subprocess() as place:

        async def program():
            with pytest.raises(gymq.RolloutError):
                await capture.ask({"input": [user("?")]})
            await place.run("sleep 600", wall_s=600.0)

        with pytest.raises(gymq.RolloutError, match="out of memory"):
            await capture.watch(program())


async def test_calls_beyond_the_limit_are_refused():
    capture = Capture(rollout(Script(said()), agent()), max_calls=1)
    await capture.ask({"input": [user("?")]})
    with pytest.raises(gymq.RolloutError, match="used up"):
        await capture.ask({"input": [user("?")]})
    assert capture.limit_reached


async def asks_from(place, host):
    """A program in a place asks twice."""
    script = Script(reply("Zurich."), reply("Bern."))
    asked = rollout(script, agent())
    capture = Capture(asked)
    async with Gateway(host) as gateway, gateway.admit(asked.id, capture.ask) as admission, place:
        await place.write(
            "/tmp/gymq-program.py" if not isinstance(place, Subprocess) else "program.py", PROGRAM.encode()
        )
        env = {"OPENAI_BASE_URL": admission.openai_url, "OPENAI_API_KEY": admission.api_key}
        name = "program.py" if isinstance(place, Subprocess) else "/tmp/gymq-program.py"
        ended = await capture.watch(place.run(f"python3 {name}", wall_s=60.0, env=env))
    assert (ended.exit_status, ended.stdout.strip()) == (0, b"Bern."), ended.stderr
    assert [item["role"] for item in capture.conversation().output] == ["assistant", "user", "assistant"]


async def test_a_process_asks_the_model_through_the_gateway():
    await asks_from(Subprocess(), "127.0.0.1")


async def test_a_container_asks_the_model_through_the_gateway():
    containers = pytest.importorskip("gymq.ext.containers")
    needs_docker()
    place = containers.Docker("python:3.13-slim", life_s=120.0)
    await asks_from(place, await containers.network_address())


async def test_the_clients_of_openai_see_why_a_call_is_refused():
    capture = Capture(rollout(Script(said()), agent()), max_calls=0)
    async with Gateway() as gateway, gateway.admit("r", capture.ask) as admission:
        sdk = openai.AsyncOpenAI(base_url=admission.openai_url, api_key=admission.api_key, max_retries=0)
        with pytest.raises(openai.APIStatusError, match="used up"):
            await sdk.chat.completions.create(model="any", messages=[{"role": "user", "content": "?"}])
        await sdk.close()
    assert json.dumps(capture.calls) == "[]"
