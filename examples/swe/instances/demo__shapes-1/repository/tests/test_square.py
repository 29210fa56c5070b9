from shapes import square_area


def test_square():
    assert square_area(3) == 9
