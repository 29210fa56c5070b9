"""A record gets the form of each trainer."""

import pytest

from gymq.data.records import Record
from gymq.ext.trainers.forms import to_nemo_rl, to_openrlhf, to_trl, to_verl
from tests.support.turns import result_of

GOLDEN_IDS = {
    1: [100, 2],
    2: [100, 2, 201, 101, 2],
    7: [100, 2, 201, 101, 2, 202, 102, 2, 203, 103, 2, 204, 104, 2, 205, 105, 2, 206, 106, 2],
}
GOLDEN_MASK = {1: [1, 1], 2: [1, 1, 0, 1, 1], 7: [1, 1] + [0, 1, 1] * 6}
GOLDEN_LOG_PROBS = {
    1: [-0.25, -0.5],
    2: [-0.25, -0.5, 0.0, -0.25, -1.5],
    7: [-0.25, -0.5] + [value for turn in range(1, 7) for value in (0.0, -0.25, -0.5 - turn)],
}


@pytest.mark.parametrize("turns", [1, 2, 7])
def test_verl_gets_its_fields(turns: int) -> None:
    converted = to_verl(Record.of(result_of(turns)))
    assert converted["prompt_ids"] == [1, 7]
    assert converted["response_ids"] == GOLDEN_IDS[turns]
    assert converted["response_mask"] == GOLDEN_MASK[turns]
    assert converted["response_logprobs"] == GOLDEN_LOG_PROBS[turns]
    assert (converted["reward_score"], converted["num_turns"]) == (0.5, turns)
    assert converted["routed_experts"].shape == (2 + len(GOLDEN_IDS[turns]) - 1, 1, 2)


@pytest.mark.parametrize("turns", [1, 2, 7])
def test_trl_gets_its_fields(turns: int) -> None:
    assert to_trl(Record.of(result_of(turns))) == {
        "prompt_ids": [1, 7],
        "completion_ids": GOLDEN_IDS[turns],
        "env_mask": GOLDEN_MASK[turns],
        "logprobs": GOLDEN_LOG_PROBS[turns],
        "env_reward": 0.5,
        "num_turns": turns,
    }


def test_nemo_rl_gets_its_message_log() -> None:
    converted = to_nemo_rl(Record.of(result_of(2, reward_components={"a": 0.5}, mask_sample=True)))
    experts = [entry.pop("routed_experts").tolist() for entry in converted["message_log"]]
    assert experts == [[[[0, 0]], [[0, 1]]], [[[0, 2]], [[1, 3]]], [[[1, 4]]], [[[1, 5]]]]
    assert converted["message_log"] == [
        {"role": "user", "content": "", "token_ids": [1, 7]},
        {"role": "assistant", "content": "", "token_ids": [100, 2], "generation_logprobs": [-0.25, -0.5]},
        {"role": "user", "content": "", "token_ids": [201]},
        {"role": "assistant", "content": "", "token_ids": [101, 2], "generation_logprobs": [-0.25, -1.5]},
    ]
    assert converted["input_message_log"] == converted["message_log"][:1]
    assert converted["reward_components"] == {"a": 0.5}
    assert converted["mask_sample"] is True
    assert len(to_nemo_rl(Record.of(result_of(7)))["message_log"]) == 14
    assert len(to_nemo_rl(Record.of(result_of(1)))["message_log"]) == 2


@pytest.mark.parametrize(("turns", "ranges"), [(1, [(2, 4)]), (2, [(2, 4), (5, 7)])])
def test_openrlhf_gets_its_fields(turns: int, ranges: list[tuple[int, int]]) -> None:
    converted = to_openrlhf(Record.of(result_of(turns)), prompt="p", label="l")
    assert converted["observation_tokens"] == [1, 7, *GOLDEN_IDS[turns]]
    assert converted["action_ranges"] == ranges
    assert converted["rollout_log_probs"] == [0.0, 0.0, *GOLDEN_LOG_PROBS[turns]]
    assert (converted["reward"], converted["scores"], converted["truncated"]) == (0.5, 0.5, False)
    assert (converted["prompt"], converted["label"]) == ("p", "l")


def test_a_rollout_that_was_cut_short_says_so() -> None:
    result = result_of(1)
    result["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
    assert to_openrlhf(Record.of(result))["truncated"] is True
