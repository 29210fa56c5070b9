"""What stands at the head of a rollout that is read whole."""

import io

import pytest
from rich.console import Console

from gymq.cli.transcript import print_transcript
from gymq.messages import Rollout
from gymq.testing import reply


@pytest.mark.parametrize(
    ("versions", "shown"), [(["v1"], "v1"), (["", "v1", "v2"], "(as started), v1, v2"), (["\x1b[2J"], "<1b>[2J")]
)
def test_a_transcript_names_the_policies(versions: list[str], shown: str) -> None:
    rollout = Rollout(
        run="r",
        task_index=0,
        rollout_index=0,
        agent="a",
        row=b'{"responses_create_params": {"input": "x"}}',
        response=reply("done"),
        reward=1.0,
        policy_versions=versions,
    )
    console = Console(file=io.StringIO(), width=100)
    print_transcript(rollout, console)
    assert isinstance(console.file, io.StringIO)
    (line,) = [line for line in console.file.getvalue().splitlines() if line.startswith("policy")]
    assert line.split(maxsplit=1)[1].strip() == shown
