from words import count_words


def test_two_words():
    assert count_words("two words") == 2


def test_no_words():
    assert count_words("") == 0
