"""Words, names and numbers that stand by themselves, in whatever dress and wherever they are."""

import pytest

from gymq.ext.text import Words

DRESSES = (
    "{}",
    "It is {}.",
    "**{}**",
    "_{}_",
    "`{}`",
    "${}$",
    "({})",
    '"{}"',
    "{},x",
    "x;{}",
    "{}'s",
    "\\text{{{}}}",
    "x\n- {}\n",
)
SPELLINGS = ("Geneva", "4827193", "12", "Jean-Paul", "New York", "c0ffee1-0a1b-9")
LONGER = {
    "Geneva": ("Genevan", "xGeneva", "geneva_2", "Geneva-based", "pre-Geneva", "Geneva7"),
    "4827193": ("14827193", "48271930", "4827193.5", "0.4827193", "-4827193", "is -4827193", "x4827193", "4827193kg"),
    "12": ("112", "3,12", "12,5", "1,234,012", "12.5", "012x"),
    "Jean-Paul": ("Jean-Pauline", "Jean Paul", "Jean-Paul-Marie"),
    "New York": ("New Yorker", "Newer York", "NewYork"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("dress", DRESSES)
def test_a_spelling_stands_by_itself_in_whatever_dress(spelling, dress):
    assert spelling in Words(dress.format(spelling))
    assert spelling.upper() in Words(dress.format(spelling.lower()))


@pytest.mark.parametrize(("spelling", "text"), [(one, text) for one, texts in LONGER.items() for text in texts])
def test_a_part_of_a_longer_word_or_number_does_not(spelling, text):
    assert spelling not in Words(text)


@pytest.mark.parametrize(
    ("spelling", "text"),
    [
        ("1234567", "1,234,567"),
        ("1,234,567", "1234567"),
        ("4827193", "4,827,193, and more"),
        ("1112223", "1112223,7778889,4445556"),
        ("7778889", "[1112223,7778889]"),
        ("1112", "1112,2223"),
        ("2223", "1112,2223"),
        ("-7", "x = -7"),
        ("3.5", "3.5."),
        ("new york", "New\u00a0\nYork"),
        ("Jean-Paul", "Jean\u2011Paul"),
        ("+", "a + b"),
    ],
)
def test_the_same_in_another_spelling(spelling, text):
    assert spelling in Words(text)


@pytest.mark.parametrize("spelling", ["", " ", "\n"])
def test_a_blank_is_no_word(spelling):
    assert spelling not in Words("a b")


def test_the_first_place_by_itself():
    assert Words("Indiana and India").place_of("india") == 12
    assert Words("India").place_of("Peru") is None
