"""What a model thought before it answered."""

import pytest

from gymq.ext.text.thoughts import thoughts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<think> a\nb </think> c", "a\nb"),
        ("<think>a</think> b <think>c</think>", "a"),
        ("</think> <think>a</think>", "a"),
        ("<think>a", None),
        ("a</think>", None),
        ("", None),
    ],
)
def test_the_first_thoughts_are_read(text, found):
    assert thoughts(text) == found
