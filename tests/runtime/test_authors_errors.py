"""An exception of an author's code says where it was raised."""

from pathlib import Path

import pytest

import gymq
from gymq.outcomes import MAX_FRAMES, RolloutError, raised_by_author
from gymq.testing import Harness, reply


class Clumsy(gymq.Resources[gymq.Row]):
    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:  # type: ignore[override]
        return self.look(request)

    def look(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(request.row.answr)  # type: ignore[attr-defined]


async def test_a_failed_verification_names_the_file_and_the_line():
    async with Harness(Clumsy) as env:
        with pytest.raises(RolloutError) as failed:
            await env.verify({"responses_create_params": {"input": "?"}}, reply("A"))
    first, *frames = failed.value.message.splitlines()
    assert first.endswith("AttributeError: 'Row' object has no attribute 'answr'")
    assert [frame.split(" in ")[1].partition(":")[0] for frame in frames if __file__ in frame] == ["verify", "look"]
    assert "request.row.answr" in frames[-2] + frames[-1]


def test_an_error_that_recurses_is_shown_by_its_last_frames():
    def deeper(left: int) -> None:
        if not left:
            raise ValueError("too deep")
        deeper(left - 1)

    with pytest.raises(ValueError, match="too deep") as failed:
        deeper(100)
    lines = raised_by_author(failed.value).splitlines()
    assert len(lines) == 1 + MAX_FRAMES
    assert Path(__file__).name in lines[-1]
