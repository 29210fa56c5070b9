from clock import minutes_between


def test_within_a_day():
    assert minutes_between("09:05", "10:00") == 55
