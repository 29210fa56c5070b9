"""`gymq weights` says which replicas have the new weights, and ends with status 1 unless all that run have them."""

import pytest

from gymq.bus import Bus
from gymq.bus.weights import Pushed
from gymq.ext.operate.weights import announce, report
from tests.support.world import World
from tests.trainer.conftest import world as world

NO_REPLICA = "gymq: no replica answers: each that starts loads them before it serves\n"


@pytest.mark.parametrize(
    ("pushed", "status", "out", "err"),
    [
        (Pushed("v1", ["a"]), 0, "1 replica of m answer with v1\n", ""),
        (Pushed("v1"), 1, "0 replicas of m answer with v1\n", NO_REPLICA),
        (Pushed("v1", ["a"], {"b": "late"}), 1, "1 replica of m answer with v1\n", "gymq: b does not: late\n"),
    ],
)
def test_the_status_says_whether_all_replicas_have_them(
    pushed: Pushed, status: int, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report("m", pushed) == status
    assert capsys.readouterr() == (out, err)


async def test_weights_that_the_engines_have_are_announced(world: World, bus: Bus) -> None:
    assert await announce("v0", model=world.name("policy"), nats=world.url) == 0
