from ledger import balance


def test_bookings_are_added_up():
    assert balance([100, -30]) == 70
