from line import Line


def test_length():
    line = Line()
    line.put("Ada")
    assert len(line) == 1
