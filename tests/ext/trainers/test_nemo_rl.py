"""Message logs are those that NeMo RL's own post-processing would make of the same results."""

import copy
import json
import math
import sys
import types
from typing import Any

import pytest

from gymq.data.records import NotTrainable
from gymq.errors import UsageError
from gymq.ext.shared.row_failed import RowFailed
from gymq.ext.trainers.nemo_rl import NemoGym
from gymq.ext.trainers.nemo_rl.logs import MessageLogs, failure
from gymq.ext.trainers.nemo_rl.media import embed_media
from gymq.trainer import TrainingRun
from gymq.trainer.groups import SampleFailed
from tests.support.engine import Body, say
from tests.support.environments import Counter
from tests.support.world import World

from .nemo_rl_oracle import packed_experts, post_processed

pytest.importorskip("torch", reason="torch is not installed here; `make test-in NAME=vllm` installs it")

NUM_ROLLOUTS = 1000
ADD = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
    "strict": False,
}


class Letters:
    """A tokenizer for logs."""

    def batch_decode(self, sequences: list[list[int]]) -> list[str]:
        return ["".join(chr(token) for token in sequence) for sequence in sequences]


def logs(**cfg: Any) -> MessageLogs:
    made = MessageLogs(cfg)
    made.tokenizer = Letters()
    return made


def plain(log: list[Body]) -> list[Body]:
    """A log in lists, without the contents, which are always empty."""
    assert all(message["content"] == "" for message in log)
    return [
        {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in message.items()
            if name != "content"
        }
        for message in log
    ]


def is_same(one: Any, other: Any) -> bool:
    """Whether two logs are equal; log probs have lost precision as 32-bit numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return math.isclose(one, other, rel_tol=1e-6) if isinstance(one, float) else bool(one == other)


def with_experts(completion: Body) -> None:
    message = completion["choices"][0]["message"]
    tokens = len(message["prompt_token_ids"]) + len(message["generation_token_ids"])
    message["routed_experts"] = packed_experts(tokens, 2, 3, first=tokens)


def turn(body: Body) -> Body:
    """As many calls of the tool as the prompt says, of several kinds, then an answer."""
    number = int(body["messages"][0]["content"].split()[-1])
    done = sum(message["role"] == "tool" for message in body["messages"])
    if done < number % 4:
        return say("adding" if number % 3 else None, ("add", {"amount": 1}), reasoning="hm" if number % 2 else None)
    return say(["done", "<tool_call>no</tool_call>", "<think>hm"][number % 3])


async def test_a_thousand_rollouts_are_post_processed_without_a_violation(world: World, training: TrainingRun) -> None:
    await world.add_resources("counter", Counter())
    await world.add_agent("adder", "counter", max_concurrency=64)
    world.engine.turn = turn
    world.engine.spoil = with_experts
    examples = [
        world.row(
            f"number {number}", agent="adder", expected=number % 4, params={"tools": [ADD]}, _ng_task_index=number
        )
        for number in range(NUM_ROLLOUTS)
    ]
    made = logs(require_routed_experts=True)
    lengths = set()
    violations = []
    async for group in training.run_rollouts(examples):
        assert not group.failures
        result = group.samples[0].result
        assert result["reward"] == 1.0
        expected = post_processed(copy.deepcopy(result))
        found = made.of(result)
        lengths.add(len(found["message_log"]))
        if not is_same(plain(found["message_log"]), expected):
            violations.append(group.task_index)
        assert found["input_message_log"] == found["message_log"][:1]
        assert "token_ids" not in json.dumps(found["full_result"])
    assert violations == []
    assert lengths == {2, 4, 6, 8}


async def test_the_share_that_a_message_log_leaves_out_is_a_metric(training: TrainingRun, five_calls: Body) -> None:
    batch = training.run_rollouts([five_calls])
    ((_, log, _),) = [streamed async for streamed in logs().stream(batch, 1, "timing")]
    sampled = sum(len(message["token_ids"]) for message in log["message_log"] if message["role"] == "assistant")
    ((sample,),) = [group.samples async for group in training.run_rollouts([five_calls])]
    assert log["full_result"]["dropped_token_share"] == 1 - sampled / sum(sample.num_sampled_tokens)


def result_of(*turns: Body, given: Any = "") -> Body:
    """A result whose items with tokens continue one another: turn t samples token t."""
    output, seen = [], [1]
    for number, item in enumerate(turns):
        tokens = {}
        if item["type"] == "message":
            tokens = {"prompt_token_ids": seen, "generation_token_ids": [number], "generation_log_probs": [-0.5]}
            seen = [*seen, number, 90]
        output.append({**item, **tokens})
    return {"reward": 1.0, "response": {"output": output}, "responses_create_params": {"input": given}}


def text(written: str = "x", **members: Any) -> Body:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": written}], **members}


# Routed experts -------------------------------------------------------------------------------------------------------


def test_experts_are_required_where_nemo_rl_requires_them() -> None:
    with pytest.raises(NotTrainable, match="no routed_experts, which router replay requires"):
        logs(require_routed_experts=True).of(result_of(text()))
    since_september = MessageLogs({"require_routed_experts": True}, may_lack_experts=True)
    since_september.tokenizer = Letters()
    assert "routed_experts" not in since_september.of(result_of(text()))["message_log"][1]


@pytest.mark.parametrize(
    "spoiled",
    [
        "nrlre2:int16:2x1x1:AAAAAA==",
        "nrlre1:int64:2x1x1:AAAAAA==",
        "nrlre1:int16:2x1x1:A",
        "nrlre1:int16:3x1x1:AAAAAA==",
    ],
)
def test_experts_of_another_form_are_named(spoiled: str) -> None:
    with pytest.raises(NotTrainable, match="routed_experts are 'nrlre"):
        logs().of(result_of(text(routed_experts=spoiled)))


def test_too_few_experts_are_refused_and_lists_are_taken() -> None:
    found = logs(routed_experts_dtype="int32").of(result_of(text(routed_experts=[[[5]], [[6]]])))
    assert [message["routed_experts"].tolist() for message in found["message_log"]] == [[[[5]]], [[[6]]]]
    assert str(found["message_log"][0]["routed_experts"].dtype) == "torch.int32"
    found = logs().of(result_of(text(routed_experts=[[[5, 6]]])))  # as from vLLM: none of the last token
    assert [message["routed_experts"].tolist() for message in found["message_log"]] == [[[[5, 6]]], [[[0, 1]]]]
    with pytest.raises(NotTrainable, match=r"of the shape \(0,\), not integers of the shape \[2, layers, K\]"):
        logs().of(result_of(text(routed_experts=[])))
    with pytest.raises(UsageError, match="one of int8, int16, int32, not 'int64'"):
        logs(routed_experts_dtype="int64")


# Parts of NeMo RL, as mocks ---------------------------------------------------------------------------------------


@pytest.fixture
def nemo_rl(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Modules of NeMo RL, with what they were asked."""
    asked = types.SimpleNamespace(embedded=[], attached=[])

    def attach(message: Body, *, images: list[str], processor: Any, pad_dynamic_image_shapes: bool) -> None:
        asked.attached.append((message["token_ids"].tolist(), images, processor, pad_dynamic_image_shapes))
        message["pixel_values"] = images

    modules: dict[str, dict[str, Any]] = {
        "nemo_rl.algorithms.utils": {"get_tokenizer": lambda config, get_processor: f"processor of {config['name']}"},
        "nemo_rl.data.multimodal_utils": {
            "resolve_to_image": lambda source: f"image {source}",
            "attach_image_model_inputs_to_message": attach,
        },
        "nemo_rl.environments.nemo_gym": {"encode_images_in_examples": asked.embedded.append},
        "nemo_rl.experience.failures": {
            "GymTransportError": type("GymTransportError", (Exception,), {}),
            "RolloutDataFailure": type("RolloutDataFailure", (Exception,), {}),
        },
    }
    for name, members in modules.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("nemo_rl", "nemo_rl.algorithms", "nemo_rl.data", "nemo_rl.environments", "nemo_rl.experience"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    return asked


def image(source: str) -> Body:
    return {"type": "input_image", "image_url": source}


def test_images_go_to_the_turn_that_saw_them(nemo_rl: types.SimpleNamespace) -> None:
    given = [{"role": "user", "content": [image("first"), image("second"), {"type": "input_text", "text": "?"}]}]
    result = result_of(
        text(),
        {"type": "function_call_output", "output": "data:image/png;base64,AA"},
        {"type": "function_call_output", "output": "https://elsewhere/x.png"},
        text(),
        text(),
        given=given,
    )
    found = logs(tokenizer_config={"name": "vlm"}, pad_dynamic_image_shapes=True).of(result)
    assert nemo_rl.attached == [
        ([1], ["image first", "image second"], "processor of vlm", True),
        ([90], ["image data:image/png;base64,AA"], "processor of vlm", True),
    ]
    assert ["pixel_values" in message for message in found["message_log"]] == [True, False, True, False, False, False]


def test_what_an_agent_saw_first_comes_before_what_the_row_has(nemo_rl: types.SimpleNamespace) -> None:
    result = result_of(text(), given=[{"role": "user", "content": [image("of the row")]}])
    result["response"]["agent_input"] = [{"role": "user", "content": [image("of the agent")]}]
    logs(tokenizer_config={"name": "vlm"}).of(result)
    assert [images for _, images, *_ in nemo_rl.attached] == [["image of the agent"]]


def test_rows_with_images_or_videos_are_completed_by_nemo_rl(nemo_rl: types.SimpleNamespace) -> None:
    def row(*parts: Body) -> Body:
        return {"responses_create_params": {"input": [{"role": "user", "content": list(parts)}]}}

    embed_media([row({"type": "input_text", "text": "?"})])
    assert nemo_rl.embedded == []
    rows = [row(), row(image("a.png"))]
    embed_media(rows)
    assert nemo_rl.embedded == [rows]
    since_september: list[Any] = []
    vars(sys.modules["nemo_rl.environments.nemo_gym"])["normalize_media_in_examples"] = since_september.append
    embed_media(rows)
    assert (nemo_rl.embedded, since_september) == ([rows], [rows])
    videos = [row({"type": "input_video", "video_url": "b.mp4"})]
    embed_media(videos)
    assert since_september == [rows, videos]


@pytest.mark.parametrize(
    ("status", "expected"),
    [(500, "GymTransportError"), (504, "GymTransportError"), (429, "GymTransportError"), (422, "RolloutDataFailure")],
)
def test_a_failure_is_of_the_class_by_which_nemo_rl_decides(
    nemo_rl: types.SimpleNamespace, status: int, expected: str
) -> None:
    error = failure("row 3", SampleFailed(0, "judge_failed", "no judge", status))
    assert (type(error).__name__, str(error)) == (expected, "judge_failed: row 3: no judge")


def test_a_failure_without_nemo_rl_has_its_status() -> None:
    error = failure("row 3", SampleFailed(0, "judge_failed", "no judge", 500))
    assert isinstance(error, RowFailed)
    assert error.status == 500


def test_token_capture_is_refused_rather_than_ignored() -> None:
    with pytest.raises(UsageError, match=r"^token_capture is not supported: .*; set .*\.enabled to false$"):
        NemoGym({"token_capture": {"enabled": True}})


@pytest.mark.parametrize("token_capture", [None, {}, {"enabled": False, "staging_partition": "rollout_staging"}])
def test_token_capture_that_is_off_is_accepted(token_capture: Body | None) -> None:
    NemoGym({"token_capture": token_capture})
