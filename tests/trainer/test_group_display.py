"""What a notebook shows of a group of samples: counts and rewards, not every response."""

from gymq.trainer.groups import Group, SampleFailed


def test_a_group_is_shown_in_one_short_line():
    failed = [SampleFailed(index, "model_failed", "out of memory " * 1000, 500) for index in range(16)]
    group = Group(3, {"responses_create_params": {"input": "x" * 10_000}}, [], failed, 16)
    assert repr(group) == "Group(task_index=3, samples=0/16, failures=16, rewards=[])"
