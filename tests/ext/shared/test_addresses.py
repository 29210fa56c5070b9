"""Addresses at which servers are found."""

import pytest

from gymq.ext.shared.addresses import reachable


@pytest.mark.parametrize(
    ("host", "where"),
    [("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("::", "[::1]"), ("fd00::5", "[fd00::5]"), ("here", "here")],
)
def test_a_server_at_all_addresses_is_found_at_one_of_its_family(host: str, where: str) -> None:
    assert reachable(host) == where
