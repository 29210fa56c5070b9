"""Programs as agents: where they run, and what becomes of the model calls that they make."""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

import openai
import psutil
import pytest
import uvloop

import gymq
from gymq.ext.containers import Apptainer, Docker, network_address
from gymq.ext.gateway import Capture, Gateway
from gymq.protocol.messages import Generate
from gymq.sandbox import MIB, Subprocess
from gymq.testing import reply
from tests.support.compatibility import record
from tests.support.owners import start_owner
from tests.support.waiting import DEADLINE_S, until

from .script import Script, agent, rollout, said
from .swe import needs_docker


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


PROGRAM = """
import json, os, urllib.request
asked = {"model": "any", "messages": [{"role": "user", "content": "Capital of Switzerland?"}]}
for turn in range(2):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(asked).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    asked["messages"] += [answer, {"role": "user", "content": "Sure?"}]
print(answer["content"])
"""


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
    needs_docker()
    await asks_from(Docker("python:3.13-slim", life_s=120.0), await network_address())


async def test_a_container_reaches_nothing_but_this_machine():
    needs_docker()
    await network_address()
    async with Docker("python:3.13-slim", life_s=120.0) as place:
        script = "python3 -c \"import socket; socket.create_connection(('1.1.1.1', 80), 2)\""
        assert b"unreachable" in (await place.run(script, wall_s=30.0)).stderr


async def test_variables_are_on_no_command_line():
    needs_docker()
    await network_address()
    async with Docker("python:3.13-slim", life_s=120.0) as place:
        ended = await place.run("echo $KEY", wall_s=30.0, env={"KEY": "secret-of-a-test"})
        assert ended.stdout == b"secret-of-a-test\n"


@pytest.mark.parametrize("kind", ["process", "docker"])
async def test_a_program_that_takes_too_long_is_ended(kind):
    if kind == "docker":
        needs_docker()
        await network_address()
    place = Subprocess() if kind == "process" else Docker("python:3.13-slim", life_s=120.0)
    async with place:
        ended = await place.run("echo began; sleep 600", wall_s=5.0)
        assert (ended.limit, ended.stdout) == ("time", b"began\n")
        assert (await place.run("echo again", wall_s=30.0)).stdout == b"again\n"


async def test_a_program_that_takes_too_much_memory_is_ended_and_nothing_else():
    needs_docker()
    await network_address()
    async with Docker("python:3.13-slim", life_s=120.0, memory_mib=64) as place:
        ended = await place.run("python3 -c 'x = bytearray(10**9)'", wall_s=60.0)
        assert ended.limit == "memory"
        assert (await place.run("echo lives", wall_s=30.0)).stdout == b"lives\n"


async def test_a_container_that_is_lost_is_a_failure():
    needs_docker()
    await network_address()
    async with Docker("python:3.13-slim", life_s=120.0) as place:
        await place.stop()
        with pytest.raises(gymq.ComponentFailed, match="is gone"):
            await place.run("true", wall_s=30.0)


async def test_an_image_that_is_not_there_is_a_failure():
    needs_docker()
    await network_address()
    with pytest.raises(gymq.ComponentFailed, match="no container of gymq-no-such-image"):
        async with Docker("gymq-no-such-image", life_s=120.0):
            pass


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_program_need_not_read_what_it_is_given(new_loop):
    async def ends():
        async with Subprocess() as place:
            with_input = await place.run("exec <&-; exit 3", wall_s=60.0, stdin=b"x" * 10**6)
            return with_input.exit_status, (await place.run("exit 4", wall_s=60.0)).exit_status

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(ends()) == (3, 4)


async def test_a_cancelled_program_is_gone_with_its_children(tmp_path):
    started = tmp_path / "pid"
    async with Subprocess() as place:
        running = asyncio.create_task(
            place.run(f"sleep 600 & echo $! > {started}.part; mv {started}.part {started}; wait", wall_s=600.0)
        )
        await until(started.exists)
        running.cancel()
        await asyncio.wait([running])
    await until(lambda: not psutil.pid_exists(int(started.read_text())))


@pytest.mark.parametrize("left", ["sleep 600", "setsid sleep 600", "trap '' TERM HUP; setsid setsid sleep 600"])
async def test_what_a_program_leaves_running_is_ended_with_it(tmp_path, left):
    noted = tmp_path / "pid"
    script = f"({left}) & echo $! > {noted}; echo done"
    async with Subprocess() as place:
        ended = await place.run(script, wall_s=300.0)
    assert (ended.exit_status, ended.limit, ended.stdout) == (0, None, b"done\n")
    assert not psutil.pid_exists(int(noted.read_text()))


async def test_a_program_that_kills_its_keeper_is_ended_too(tmp_path):
    noted = tmp_path / "pid"
    async with Subprocess() as place:
        ended = await place.run(f"echo $$ > {noted}; setsid sleep 600 & kill -KILL $PPID; sleep 600", wall_s=300.0)
    assert (ended.exit_status, ended.limit) == (-9, None)
    assert not psutil.pid_exists(int(noted.read_text()))


async def test_memory_of_all_that_a_process_starts_is_limited():
    script = "python3 -c 'x = bytearray(10**8); input()' < /dev/zero & " * 2
    async with Subprocess(memory_mib=150) as place:
        assert (await place.run(script + "wait", wall_s=300.0)).limit == "memory"
        assert (await place.run("echo lives", wall_s=300.0)).stdout == b"lives\n"


async def test_of_what_a_program_prints_without_end_the_beginning_is_kept():
    async with Subprocess() as place:
        ended = await place.run("head -c 100000000 /dev/zero", wall_s=300.0)
    assert (ended.exit_status, len(ended.stdout)) == (0, 16 * MIB)


async def test_programs_of_a_process_that_is_killed_end_and_their_folder_is_removed(tmp_path):
    driver, (pid, folder) = await start_owner(tmp_path, "(trap '' TERM; setsid sleep 600) &", "$! $PWD")
    driver.kill()
    await driver.wait()
    await until(lambda: not psutil.pid_exists(int(pid)) and not Path(folder).exists())


def mock_apptainer(folder, monkeypatch):
    """A mock of `apptainer`: notes how it is called, and runs what it is given, with its caller's environment.

    So does `apptainer exec`, but with `--cleanenv`.
    """
    program = folder / "apptainer"
    program.write_text(
        f'#!/bin/bash\necho "$@" >> {folder}/calls\nenv >> {folder}/environment\n'
        f'[ "$2" = stop ] && [ -e {folder}/program ] && kill $(cat {folder}/program)\n'
        f'[ "$1" = exec ] || exit 0\necho $$ > {folder}/program\nshift\n'
        '[ "$1" = --cleanenv ] && shift && clean="env -i PATH=$PATH"\nshift\n'
        'exec $clean env KEY=$APPTAINERENV_KEY "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


async def test_apptainer_is_called_as_it_wants_to_be(tmp_path, monkeypatch):
    mock_apptainer(tmp_path, monkeypatch)
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "secret")
    monkeypatch.setenv("LC_TELEPHONE", "also-not-for-programs")
    async with Apptainer("/images/a.sif", life_s=60.0, memory_mib=512, folders={"/harness": "/opt/harness"}) as place:
        ended = await place.run("echo $KEY $SECRET_OF_THE_WORKER $LC_TELEPHONE", wall_s=60.0, env={"KEY": "k"})
    assert ended.stdout == b"k\n"
    assert "SECRET_OF_THE_WORKER" not in (tmp_path / "environment").read_text()
    start, inside, stop = (tmp_path / "calls").read_text().splitlines()
    isolation = "--containall --cleanenv --writable-tmpfs --bind /opt/harness:/harness:ro"
    assert start == f"instance start {isolation} /images/a.sif {place.name}"
    assert inside.startswith(
        f"exec --cleanenv instance://{place.name} timeout --signal=KILL 60.000 sh -c ulimit -v 524288; "
    )
    assert stop == f"instance stop {place.name}"
    what = "an instance with a time limit, a memory limit and folders, without the worker's variables"
    record("Apptainer: where agents run", "commands of 1.4", "a mock of its command", what)


@pytest.mark.parametrize(("life_s", "is_killed"), [(600.0, True), (0.5, False)])
async def test_an_instance_ends_after_its_life_and_with_its_process(tmp_path, monkeypatch, life_s, is_killed):
    mock_apptainer(tmp_path, monkeypatch)
    owner, (pid,) = await start_owner(
        tmp_path, "", "$$", f"'image', life_s={life_s}", "Apptainer", "gymq.ext.containers"
    )
    if is_killed:
        owner.kill()
    await asyncio.wait_for(owner.wait(), DEADLINE_S)
    await until(lambda: not psutil.pid_exists(int(pid)))
    assert (tmp_path / "calls").read_text().splitlines()[-1].startswith("instance stop gymq-harness-")


async def test_containers_have_few_privileges_and_do_not_reach_each_other(tmp_path, monkeypatch):
    """A mock of `docker` that notes how it is called and with which variables; no network is there at first."""
    program = tmp_path / "docker"
    program.write_text(
        f'#!/bin/bash\necho "$@" >> {tmp_path}/calls\nenv >> {tmp_path}/environment\n'
        f'if [ "$1 $2" = "network create" ]; then touch {tmp_path}/made; fi\n'
        f'if [ "$1 $2" = "network inspect" ]; then [ -f {tmp_path}/made ] && echo 10.0.0.1; fi\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "secret")
    assert await network_address() == "10.0.0.1"
    async with Docker("image", life_s=60.0):
        pass
    calls = (tmp_path / "calls").read_text().splitlines()
    (network,) = [call for call in calls if call.startswith("network create")]
    assert "--internal" in network
    assert "com.docker.network.bridge.enable_icc=false" in network
    (run,) = [call for call in calls if call.startswith("run")]
    assert f"--network {network.split()[-1]}" in run
    assert "--security-opt no-new-privileges --cap-drop ALL" in run
    assert not {"NET_RAW", "SYS_ADMIN", "MKNOD", "SYS_CHROOT"} & set(run.split())
    assert "SECRET_OF_THE_WORKER" not in (tmp_path / "environment").read_text()


async def test_the_clients_of_openai_see_why_a_call_is_refused():
    capture = Capture(rollout(Script(said()), agent()), max_calls=0)
    async with Gateway() as gateway, gateway.admit("r", capture.ask) as admission:
        sdk = openai.AsyncOpenAI(base_url=admission.openai_url, api_key=admission.api_key, max_retries=0)
        with pytest.raises(openai.APIStatusError, match="used up"):
            await sdk.chat.completions.create(model="any", messages=[{"role": "user", "content": "?"}])
        await sdk.close()
    assert json.dumps(capture.calls) == "[]"


async def test_a_program_whose_start_is_cancelled_after_it_began_is_ended(monkeypatch):
    # As on a machine that is so busy that the program runs before this process has read that it was started.
    loop = asyncio.get_running_loop()
    cancelled = asyncio.Event()
    connect = loop.connect_read_pipe

    async def slowly(*args):
        await cancelled.wait()
        return await connect(*args)

    monkeypatch.setattr(loop, "connect_read_pipe", slowly)
    async with Subprocess() as place:
        running = asyncio.ensure_future(place.run("echo $$ > new; mv new pid; exec sleep 600", wall_s=600.0))
        noted = place.folder / "pid"
        await until(noted.exists)
        pid = int(noted.read_text())
        running.cancel()
        await asyncio.sleep(0)  # asyncio begins to undo the start
        cancelled.set()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait([running])
        assert running.cancelled()
    assert not psutil.pid_exists(pid)
