"""Whether two processes speak a common version of the protocol."""

import pytest

from gymq.protocol.versions import ProtocolRange


@pytest.mark.parametrize(
    ("other", "is_met"), [((1, 1), False), ((1, 2), True), ((3, 3), True), ((4, 9), True), ((5, 5), False)]
)
def test_two_ranges_meet_where_they_overlap(other: tuple[int, int], is_met: bool) -> None:
    assert ProtocolRange(2, 4).meets(ProtocolRange(*other)) is is_met
