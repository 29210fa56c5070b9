"""Rollouts in the forms of other programs: written, read, shown and verified again."""

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from gymq.data.jsonl import JsonlError, JsonlFile, parse_object
from gymq.ext.formats.inspect_log import value_of
from gymq.ext.formats.trajectories import TrajectoryFile
from gymq.ext.rollout_files.files import formats, rollout_lines
from gymq.protocol.messages import Failure, FailureClass, Stage, VerifiedRollout
from gymq.protocol.tokens import TOKEN_FIELDS
from tests.cli.conftest import Command
from tests.support.compatibility import record

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
PROMPT = [
    {"type": "message", "role": "system", "content": "Be brief."},
    {"type": "message", "role": "user", "content": "Where is it?"},
]
OUTPUT: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I look."}]},
    {
        "type": "function_call",
        "call_id": "c1",
        "name": "look",
        "arguments": '{"at":"desk"}',
        "prompt_token_ids": [1, 2],
        "generation_token_ids": [3, 4],
        "generation_log_probs": [-0.5, -0.25],
    },
    {"type": "function_call_output", "call_id": "c1", "output": "a lamp"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "On the desk.", "annotations": []}],
    },
]


def rollout(task: int = 0, number: int = 0, reward: float = 1.0, **changes: Any) -> VerifiedRollout:
    row = {"responses_create_params": {"input": PROMPT, "tools": [TOOL]}, "answer": "desk"}
    response: dict[str, Any] = {"id": "r", "object": "response", "model": "m-1", "output": OUTPUT}
    response["usage"] = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    fields: dict[str, Any] = {
        "run": "r",
        "task_index": task,
        "rollout_index": number,
        "agent": "finder",
        "row": json.dumps(row).encode(),
        "response": response,
        "reward": reward,
        "verdict": {"found": True, "distance": 0.5},
    }
    return VerifiedRollout(**(fields | changes))


def written(tmp_path: Path, form: str, *outcomes: Any) -> Path:
    path = tmp_path / f"{form}.jsonl"
    write = formats()[form].write
    assert write is not None
    with TrajectoryFile(path, write) as file:
        for outcome in outcomes:
            file.add(outcome)
    assert file.num_left_out == 0
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rollout_lines(path)]


def without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name not in ("id", "status")} for item in items]


def without_tokens(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name not in TOKEN_FIELDS} for item in items]


def test_a_trajectory_has_the_steps_of_the_format(tmp_path: Path) -> None:
    (line,) = written(tmp_path, "atif", rollout()).read_text().splitlines()
    made = json.loads(line)
    assert made["schema_version"] == "ATIF-v1.4"
    assert made["agent"] == {"name": "finder", "version": made["agent"]["version"], "model_name": "m-1"}
    assert [(step["step_id"], step["source"], step["message"]) for step in made["steps"]] == [
        (1, "system", "Be brief."),
        (2, "user", "Where is it?"),
        (3, "agent", ""),
        (4, "agent", "On the desk."),
    ]
    third = made["steps"][2]
    assert third["reasoning_content"] == "I look."
    assert third["tool_calls"] == [{"tool_call_id": "c1", "function_name": "look", "arguments": {"at": "desk"}}]
    assert third["observation"] == {"results": [{"source_call_id": "c1", "content": "a lamp"}]}
    assert third["metrics"]["completion_token_ids"] == [3, 4]
    assert third["metrics"]["logprobs"] == [-0.5, -0.25]
    assert made["final_metrics"] == {"total_prompt_tokens": 10, "total_completion_tokens": 5, "total_steps": 4}


def test_a_trajectory_is_read_as_it_was(tmp_path: Path) -> None:
    failure = Failure(
        run="r", task_index=9, rollout_index=0, agent="a", row=b"{}", failure_class=FailureClass.MODEL_FAILED,
        stage=Stage.MODEL, message="no",
    )  # fmt: skip
    found = read(written(tmp_path, "atif", rollout(2, 1, 0.5), failure))
    assert len(found) == 1
    (one,) = found
    assert (one["reward"], one["_ng_task_index"], one["_ng_rollout_index"]) == (0.5, 2, 1)
    assert (one["agent_ref"], one["answer"], one["found"], one["distance"]) == ({"name": "finder"}, "desk", True, 0.5)
    assert one["responses_create_params"] == {"input": PROMPT, "tools": [TOOL]}
    assert without_ids(one["response"]["output"]) == without_ids(OUTPUT)
    assert one["response"]["model"] == "m-1"


def test_a_prompt_with_calls_is_read_as_it_was(tmp_path: Path) -> None:
    before = [OUTPUT[1] | {"call_id": "c0"}, OUTPUT[2] | {"call_id": "c0"}, PROMPT[1]]
    prompt = PROMPT + without_tokens(before)
    row = {"responses_create_params": {"input": prompt}}
    (one,) = read(written(tmp_path, "atif", rollout(row=json.dumps(row).encode())))
    assert one["responses_create_params"]["input"] == prompt
    assert without_ids(one["response"]["output"]) == without_ids(OUTPUT)


@pytest.mark.parametrize("form", ["atif", "verifiers", "verifiers-traces"])
def test_a_row_of_an_agent_with_prompts_of_its_own_has_none(tmp_path: Path, form: str) -> None:
    (one,) = read(written(tmp_path, form, rollout(row=b'{"responses_create_params":{}}')))
    assert one["responses_create_params"]["input"] == []
    assert one["response"]["output"][-1]["content"] in ("On the desk.", OUTPUT[-1]["content"])


@pytest.mark.parametrize("form", ["atif", "verifiers-traces"])
def test_calls_of_all_tools_and_all_reasoning_are_kept(tmp_path: Path, form: str) -> None:
    output = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "I patch."}]},
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "a-b"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        OUTPUT[-1],
    ]
    response = {"id": "r", "object": "response", "model": "m-1", "output": output}
    (one,) = read(written(tmp_path, form, rollout(response=response)))
    thought, call, result, _ = one["response"]["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "I patch."}]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "patch", {"input": "a-b"})
    assert (result["type"], result["call_id"], result["output"]) == ("function_call_output", "c1", "done")


@pytest.mark.parametrize("form", ["verifiers", "verifiers-traces"])
def test_an_image_that_a_tool_returned_is_read(tmp_path: Path, form: str) -> None:
    parts = [
        {"type": "input_text", "text": "a lamp"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"},
    ]
    output = [*OUTPUT[:2], OUTPUT[2] | {"output": parts}, OUTPUT[3]]
    response = {"id": "r", "object": "response", "model": "m-1", "output": output}
    (one,) = read(written(tmp_path, form, rollout(response=response)))
    assert [item["output"] for item in one["response"]["output"] if "output" in item] == [parts]


@pytest.mark.parametrize("form", ["atif", "verifiers", "verifiers-traces"])
def test_arguments_that_are_nested_too_deeply_stay_text(tmp_path: Path, form: str) -> None:
    call = OUTPUT[1] | {"arguments": '{"a":' * 2000 + "1" + "}" * 2000}
    response = {"id": "r", "object": "response", "model": "m-1", "output": [OUTPUT[0], call, *OUTPUT[2:]]}
    (one,) = read(written(tmp_path, form, rollout(response=response)))
    assert call["arguments"][-100:] in json.dumps(one["response"]["output"])


def test_a_trajectory_of_another_program_is_read(tmp_path: Path) -> None:
    steps = [
        {"step_id": 1, "source": "user", "message": "Make hello.txt."},
        {
            "step_id": 2,
            "source": "agent",
            "message": [{"type": "text", "text": "Doing it."}],
            "tool_calls": [{"tool_call_id": "a", "function_name": "bash", "arguments": {"command": "touch hello.txt"}}],
            "observation": {"results": [{"content": "no call"}, {"source_call_id": "a", "content": "done"}]},
        },
        {"step_id": 3, "source": "user", "message": "Thanks."},
    ]
    trajectory = {"schema_version": "ATIF-v1.7", "agent": {"name": "other agent", "version": "1"}, "steps": steps}
    (tmp_path / "trajectory.json").write_text(json.dumps(trajectory))
    (one,) = read(tmp_path / "trajectory.json")
    assert [item["type"] for item in one["response"]["output"]] == [
        "message",
        "function_call",
        "message",
        "function_call_output",
        "message",
    ]
    assert one["agent_ref"] == {"name": "other-agent"}
    assert "reward" not in one
    assert (one["_ng_failure_class"], one["_ng_failure_message"]) == (
        "verifier_failed",
        "the file has no reward of this rollout",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"schema_version": "ATIF-v2.0"}', "schema_version 'ATIF-v2.0' is not known"),
        ('{"schema_version": "ATIF-v1.4"}', "agent: expected an object"),
        ('{"schema_version": "ATIF-v1.4", "agent": {}, "steps": [{"source": "x"}]}', r"steps\[0\]: source 'x' is not"),
        ('{"a": 1}', "neither a trajectory in ATIF nor a log of Inspect"),
        ("{", "not JSON"),
    ],
)
def test_a_document_that_cannot_be_read_is_named_with_the_place(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(JsonlError, match=rf"x\.json: {problem}"):
        read(tmp_path / "x.json")


def test_a_first_line_that_is_not_utf_8_is_left_to_those_who_read_lines(tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl"
    file.write_bytes(b'{"reward": "\xff"}\n')
    (line,) = rollout_lines(file)
    with pytest.raises(JsonlError, match="not UTF-8"):
        parse_object(line)


def test_results_of_verifiers_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = written(tmp_path, "verifiers", rollout(0, 0), rollout(0, 1, 0.0), rollout(1, 0, 0.25))
    first = json.loads(path.read_text().splitlines()[0])
    assert first["prompt"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is it?"},
    ]
    assert first["completion"][0]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at":"desk"}'}
    assert (first["example_id"], first["reward"], first["answer"]) == (0, 1.0, "desk")
    assert first["metrics"] == {"found": 1.0, "distance": 0.5}
    found = read(path)
    assert [(one["_ng_task_index"], one["_ng_rollout_index"], one["reward"]) for one in found] == [
        (0, 0, 1.0),
        (0, 1, 0.0),
        (1, 0, 0.25),
    ]
    output = found[0]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "function_call_output", "message"]
    assert "I look." in output[0]["content"]  # the format has no reasoning of its own
    assert found[0]["answer"] == "desk"


def test_traces_of_verifiers_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = written(tmp_path, "verifiers-traces", rollout(0, 0), rollout(0, 1, 0.0), rollout(1, 0, 0.25))
    episode = json.loads(path.read_text().splitlines()[0])
    (trace,) = episode["traces"]
    assert (episode["ok"], episode["task"]["data"]["idx"]) == (True, 0)
    assert [node["message"]["role"] for node in trace["nodes"]] == ["system", "user", "assistant", "tool", "assistant"]
    called = trace["nodes"][2]
    assert (called["token_ids"], called["mask"], called["logprobs"]) == (
        [1, 2, 3, 4],
        [False, False, True, True],
        [-0.5, -0.25],
    )
    assert called["message"]["reasoning_content"] == "I look."
    assert trace["metrics"] == {"found": 1.0, "distance": 0.5}
    found = read(path)
    assert [(one["_ng_task_index"], one["_ng_rollout_index"], one["reward"]) for one in found] == [
        (0, 0, 1.0),
        (0, 1, 0.0),
        (1, 0, 0.25),
    ]
    assert found[0]["responses_create_params"]["input"] == PROMPT
    output = found[0]["response"]["output"]
    assert [item["type"] for item in output if item["type"] != "reasoning"] == [
        *("function_call", "function_call_output", "message"),
    ]
    assert (found[0]["answer"], found[0]["response"]["model"]) == ("desk", "m-1")


def test_a_trace_of_verifiers_that_failed_or_was_played_by_several_is_read(tmp_path: Path) -> None:
    def trace(agent: str, **fields: Any) -> dict[str, Any]:
        asked = {"message": {"role": "user", "content": "Name?"}}
        said = {"parent": 0, "message": {"role": "assistant", "content": agent}}
        aside = {"parent": 0, "message": {"role": "assistant", "content": None}}
        return {"agent": {"name": agent}, "nodes": [asked, said, aside], "ok": True, **fields}

    rewards = {"right": {"score": 1.0, "weight": 0.5}, "brief": {"score": 0.5}, "judged": None}
    traces = [
        trace("solver", rewards=rewards),
        trace("judge", ok=False, rewards=rewards, errors=[{"type": "TaskError", "message": "no judge"}]),
    ]
    episode = {"env": {"id": "best-of-n+sums"}, "task": {"data": {"idx": 7, "answer": "Ada"}}, "traces": traces}
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(episode) + "\n")
    solved, judged = read(path)
    assert (solved["reward"], solved["_ng_task_index"], solved["answer"]) == (1.0, 7, "Ada")
    assert (solved["agent_ref"], solved["_ng_rollout_index"]) == ({"name": "best-of-n-sums-solver"}, 0)
    assert "reward" not in judged
    assert (judged["_ng_rollout_index"], judged["_ng_failure_message"]) == (1, "no judge")


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        (None, "traces[0]: the trace has no list `nodes`"),
        (
            [{"parent": 0, "message": {"role": "user", "content": "x"}}],
            "nodes[0]: parent 0 is not the number of a node",
        ),
        ([{"message": {"content": "x"}}], "traces[0]"),
    ],
)
def test_a_trace_of_verifiers_that_cannot_be_read_is_named(tmp_path: Path, nodes: Any, problem: str) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps({"env": {}, "task": {}, "traces": [{"nodes": nodes}]}) + "\n")
    with pytest.raises(JsonlError, match=re.escape(problem)):
        read(path)


@pytest.mark.parametrize("form", ["verifiers", "verifiers-traces", "atif"])
def test_the_agent_and_the_fields_of_a_row_come_back(form: str, tmp_path: Path) -> None:
    task = {"options": [{"A": "desk"}], "expected_answer": "A", "agent_ref": {"name": "finder"}}
    row = {"responses_create_params": {"input": PROMPT}, **task}
    (found,) = read(written(tmp_path, form, rollout(row=json.dumps(row).encode())))
    assert {name: found[name] for name in task} == task


def test_completions_that_are_texts_are_read(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text(
        json.dumps({"prompt": "2 + 2?", "completion": "4", "reward": 1, "answer": "4", "task": "sums"}) + "\n"
    )
    (one,) = read(tmp_path / "results.jsonl")
    assert one["responses_create_params"]["input"][0]["content"] == "2 + 2?"
    assert one["response"]["output"][0]["content"] == "4"
    assert (one["reward"], one["agent_ref"]) == (1.0, {"name": "sums"})


SAMPLES: list[dict[str, Any]] = [
    {
        "id": identity,
        "epoch": epoch,
        "input": "?",
        "target": "4",
        "messages": [
            {"role": "user", "content": "2 + 2?"},
            {
                "role": "assistant",
                "content": [{"type": "reasoning", "reasoning": "I add."}, {"type": "text", "text": "Adding."}],
                "tool_calls": [{"id": "t", "function": "add", "arguments": {"a": 2}, "type": "function"}],
            },
            {"role": "tool", "tool_call_id": "t", "function": "add", "content": "4"},
            {"role": "assistant", "content": "4"},
        ],
        "output": {"model": "openai/m"},
        "scores": {"match": {"value": value, "answer": "4", "explanation": "same"}} if value else {},
        "metadata": {"level": 3},
        "model_usage": {"openai/m": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}},
    }
    for identity, epoch, value in (("a", 1, "C"), ("a", 2, "I"), ("b", 1, None))
]
LOG = {"version": 2, "status": "success", "eval": {"task": "sums", "model": "openai/m"}, "samples": SAMPLES}


def inspect_log(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / f"log.{kind}"
    if kind == "json":
        path.write_text(json.dumps({**LOG, "stats": {"x": float("nan")}}))
        return path
    members = {"header.json": {name: LOG[name] for name in ("version", "status", "eval")}}
    members |= {f"samples/{sample['id']}_epoch_{sample['epoch']}.json": sample for sample in SAMPLES}
    archive_of(path, {name: json.dumps(member).encode() for name, member in members.items()}, kind == "zstd.eval")
    return path


def archive_of(path: Path, members: dict[str, bytes], is_zstandard: bool = False) -> None:
    """Write a zip archive; Zstandard, which no Python before 3.14 writes, by changing the method of stored members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if is_zstandard else zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, zstandard.compress(member) if is_zstandard else member)
    if is_zstandard:
        content = bytearray(path.read_bytes())
        for header, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            for found, member in zip(re.finditer(re.escape(header), bytes(content)), members.values(), strict=True):
                method = found.start() + at
                content[method : method + 2] = (93).to_bytes(2, "little")
                content[method + 6 : method + 10] = zlib.crc32(member).to_bytes(4, "little")
        path.write_bytes(content)


@pytest.mark.parametrize("kind", ["json", "eval", "zstd.eval"])
def test_a_log_of_inspect_is_read_with_its_epochs_and_scores(tmp_path: Path, kind: str) -> None:
    found = read(inspect_log(tmp_path, kind))
    assert [(one["_ng_task_index"], one["_ng_rollout_index"], one.get("reward")) for one in found] == [
        (0, 0, 1.0),
        (0, 1, 0.0),
        (1, 0, None),
    ]
    first = found[0]
    assert (first["target"], first["level"], first["agent_ref"]) == ("4", 3, {"name": "sums"})
    assert first["scores"] == {"match": {"value": "C", "answer": "4", "explanation": "same"}}
    assert first["response"]["usage"] == {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    assert [item["type"] for item in first["response"]["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert first["response"]["output"][2]["arguments"] == '{"a": 2}'


@pytest.mark.parametrize(
    ("value", "expected"),
    [("C", 1.0), ("P", 0.5), ("no", 0.0), (True, 1.0), (0.3, 0.3), ("2.5", 2.5), ("good", None), ({"a": 1}, None)],
)
def test_the_value_of_a_score_is_a_number_by_the_rule_of_inspect(value: Any, expected: float | None) -> None:
    assert value_of(value) == expected


def test_an_archive_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.eval").write_bytes(b"PK not really")
    with pytest.raises(JsonlError, match=r"x\.eval: not a log of Inspect"):
        read(tmp_path / "x.eval")


@pytest.mark.parametrize("is_zstandard", [False, True])
def test_a_damaged_log_of_inspect_is_one_sentence(tmp_path: Path, is_zstandard: bool) -> None:
    path = tmp_path / "x.eval"
    archive_of(path, {"header.json": 50 * b'{"eval": {"task": "sums"}}'}, is_zstandard)
    content = path.read_bytes()
    path.write_bytes(content[:60] + bytes(byte ^ 0xFF for byte in content[60:64]) + content[64:])
    with pytest.raises(JsonlError, match=r"x\.eval: (not a log of Inspect|header\.json cannot be read): "):
        read(path)


@pytest.mark.parametrize("is_zstandard", [False, True])
def test_a_log_of_inspect_may_not_unpack_to_more_than_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_zstandard: bool
) -> None:
    monkeypatch.setattr("gymq.ext.formats.inspect_log.MAX_SAMPLE_BYTES", 1000)
    path = tmp_path / "x.eval"
    archive_of(path, {"header.json": 1001 * b" "}, is_zstandard)
    with pytest.raises(JsonlError, match=r"x\.eval: header\.json is larger than 1000 bytes"):
        read(path)


def test_a_method_that_unpacks_without_a_bound_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("header.json", "{}")
    with pytest.raises(JsonlError, match=r"compressed by method 12; expected deflate or Zstandard"):
        read(path)


def odd_copies(value: Any) -> Iterator[Any]:
    """Yield copies of a document, each with something odd in the place of one of its values."""
    for name, entry in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        for odd in (*ODD, *odd_copies(entry)):
            copy = value.copy()
            copy[name] = odd
            yield copy


ODD = (None, 5, 10**400, float("nan"), "x", "\ud800", [5], ["x"], {"a": 5})


@pytest.mark.parametrize("form", ["atif", "verifiers", "verifiers-traces", "inspect"])
def test_a_value_that_is_not_what_it_should_be_is_no_fault_of_the_reader(form: Any, tmp_path: Path) -> None:
    path = inspect_log(tmp_path, "json") if form == "inspect" else written(tmp_path, form, rollout())
    first = path.read_text()
    problems: list[str] = []
    for odd in odd_copies(json.loads(first)):
        path.write_text(json.dumps(odd) if form == "inspect" else f"{first}{json.dumps(odd)}\n")
        try:
            list(rollout_lines(path))
        except JsonlError as error:
            problems.append(str(error))
    assert problems
    assert all(problem.startswith((f"{path}: ", f"{path}:2: ")) for problem in problems)


def test_lines_of_gymq_stay_as_they_are(tmp_path: Path) -> None:
    line = b'{"reward":1.10,"response":{"output":[]},"prompt":"x","completion":"y"}\n'
    (tmp_path / "out.jsonl").write_bytes(line)
    assert list(rollout_lines(tmp_path / "out.jsonl")) == list(JsonlFile(tmp_path / "out.jsonl")) == [line]


def test_every_line_is_one_of_a_result_file(tmp_path: Path) -> None:
    for path in (written(tmp_path, "atif", rollout()), inspect_log(tmp_path, "json")):
        for line in rollout_lines(path):
            assert line.endswith(b"\n")
            assert msgspec.json.decode(line)["_ng_task_index"] >= 0


VERIFIER = '''
import gymq


class Row(gymq.Row):
    target: str


class Sums(gymq.Resources[Row]):
    """Reward 1 if the reply ends with the target."""

    async def verify(self, request: gymq.VerifyRequest[Row]) -> gymq.Verdict:
        return gymq.Verdict(float(request.reply_text.endswith(request.row.target)))
'''


def test_a_log_of_inspect_is_verified_again_by_a_verifier_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gymq: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    inspect_log(tmp_path, "eval")
    (tmp_path / "sums.py").write_text(VERIFIER)
    done = gymq("score", "--rollouts", "log.eval", "--resources", "sums.py", "-o", "again.jsonl", "--json")
    assert done.status == 0, done.err
    summary = json.loads(done.out)
    assert (summary["verified"], summary["raised"], summary["lowered"], summary["new"]) == (3, 1, 0, 1)
    assert [json.loads(line)["reward"] for line in (tmp_path / "again.jsonl").read_text().splitlines()] == [1.0] * 3


def test_files_of_several_programs_are_shown_as_runs_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gymq: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [
        written(tmp_path, "atif", rollout(0)),
        written(tmp_path, "verifiers", rollout(0)),
        written(tmp_path, "verifiers-traces", rollout(0)),
        inspect_log(tmp_path, "eval"),
    ]
    done = gymq("view", *files, "--export", "page")
    assert done.status == 0, done.err
    assert "4 runs with 6 rollouts in page/index.html" in done.out
    record("ATIF: trajectories", "1.4 written, 1.x read", "rollouts of our own", "written, read, shown")
    record("verifiers: `results.jsonl`", "0.1 form", "rollouts of our own", "written, read, shown")
    record("Inspect: logs", "`.eval`, `.json`", "logs that the test writes", "read, shown, verified again")
    assert "1 rollout of" in done.out
