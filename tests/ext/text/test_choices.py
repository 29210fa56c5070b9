"""Which option an answer chooses: families of dresses, labels, lists and words, for each letter."""

from __future__ import annotations

import pytest

from gymq.ext.text import Choices, answer_lines, boxes, closing_braces, in_order, undressed

TEXTS = {"A": "a proton", "B": "an electron", "C": "a neutron", "D": "a muon"}
CHOICES = Choices(TEXTS)
ONE = (
    *("{x}", "{y}", "({x})", "({y})", "[{x}]", "{x}.", "{x})", "{x}:", "**{x}**", "__{x}__", "`{x}`", "${x}$"),
    *("\\({x}\\)", "\\text{{{x}}}", "\\textbf{{{x}}}", "\\mathrm{{{x}}}", "\\mathbf {{{x}}}", "$\\boldsymbol{{{x}}}$."),
    *("\u201c{x}\u201d", "\\text{{({x})}}", "**({x})**", "option {x}", "Choice ({x})", "\\text{{Option {x}}}"),
    *("{x}: {text}", "({x}) {text}", "{x}. {text}", "{x}) {text}", "{x} - {text}", "{x} \u2013 {text}", "{text} ({x})"),
    *(
        "{text}",
        "{x} {text}",
        "\\text{{({x}) {text}}}",
        "I would choose {x}",
        "{x}, because it is neutral",
        "clearly {x}",
    ),
    *(
        "\\textcolor{{red}}{{{x}}}",
        "\\color{{blue}} {x}",
        "\\large {x}",
        "\\Large\\textbf{{{x}}}",
        "\\,{x}\\,",
        "{x}\\ ",
    ),
    *("\\{{{x}\\}}", "\\left({x}\\right)", "\\quad {x}", "<{x}>", "{x} ({other} is wrong)", "not {other}. {x}"),
    *("{x} and not {other}", "not {other} but {x}", "{x} rather than {other}", "{x} (not {other})", "the U.S. ({x})"),
)
SEVERAL = (
    *("{x} or {other}", "{x}/{other}", "{x}, {other}", "{x}; {other}", "{x} and {other}", "{x} & {other}"),
    *("({x})({other})", "{x}) {other})", "{x}. {other}.", "{x}: {other}:", "both {x} and {other}", "{y} or {o}"),
    *("\\text{{{x}}} or \\text{{{other}}}", "**{x}** / **{other}**", "({x}) or ({other})", "{x} {other}"),
)
NONE = (
    *("", " ", "a boson", "I do not know", "F = k x", "A = \\pi r^2", "\\Delta E", "B^2", "\\langle K \\rangle \\gg E"),
    *(
        "f(A) = 3",
        "none of them",
        "a neutron star",
        "42",
        "E",
        "AB",
        "U.S.A.",
        "D-brane",
        "it isn't so",
        "\\frac{A}{B}",
    ),
    *("A is wrong", "(B) is incorrect", "C is not right", "all but D", "anything but A", "\\text{everything but B}"),
)


@pytest.mark.parametrize("form", ONE)
def test_one_letter_is_chosen_in_whatever_dress(form):
    for letter, text in TEXTS.items():
        other = "B" if letter == "C" else "C"
        answer = form.format(x=letter, y=letter.lower(), text=text, other=other)
        assert CHOICES.chosen_in(answer) == {letter}, answer


@pytest.mark.parametrize("form", SEVERAL)
def test_several_letters_are_several(form):
    for letter in TEXTS:
        other = "B" if letter == "C" else "C"
        answer = form.format(x=letter, other=other, y=letter.lower(), o=other.lower())
        assert CHOICES.chosen_in(answer) == {letter, other}, answer


@pytest.mark.parametrize("answer", NONE)
def test_words_and_formulas_choose_nothing(answer):
    assert CHOICES.chosen_in(answer) == set()


def test_the_options_within_any_of_several_texts_are_found():
    assert CHOICES.letters_within("a neutron star", "no boson") == {"C"}


def test_without_options_every_letter_can_be_chosen():
    assert Choices({}).chosen_in("Z") == {"Z"}
    assert Choices.of([{"A": None}]).chosen_in("(z)") == {"Z"}


@pytest.mark.parametrize("answer", ["x = 2", "b x = 2", "B) x = 2", "(B) x = 3"])
def test_options_and_answers_may_be_formulas(answer):
    assert Choices({"A": "x = 1", "B": "x = 2"}).chosen_in(answer) == {"B"}


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (" **Oslo** ", "Oslo"),
        ("\u201cOslo\u201d", "Oslo"),
        ("\\text{\\textbf{ Oslo }}", "Oslo"),
        ("$\\mathrm {x}$", "x"),
        ("{x}", "x"),
        ("$x$ and $y$", "$x$ and $y$"),
        ("\\text{a} and \\text{b}", "\\text{a} and \\text{b}"),
        ("{a}{b}", "{a}{b}"),
        ("*", "*"),
        ("'tis", "'tis"),
        ("\\text", "\\text"),
    ],
)
def test_marks_are_taken_off_where_they_are_around_all(text, inner):
    assert undressed(text) == inner


def test_answers_are_found_where_a_reply_gives_them():
    reply = "\\boxed{a} **Answer:** \\boxed {\\boxed{b}}\nanswer\uff1a\n\nc \\boxed{d"
    assert in_order(boxes(reply), answer_lines(reply)) == ["a", "\\boxed {\\boxed{b}}", "\\boxed{b}", "c \\boxed{d"]
    assert closing_braces("{\\}}") == {0: 3}


@pytest.mark.parametrize(
    "text", ["\\text{" * 30_000 + "B" + "}" * 30_000, "A or " * 30_000, "(" * 100_000, "$" * 100_000]
)
def test_long_answers_are_read_in_linear_time(text):
    assert len(CHOICES.chosen_in(text)) <= 2
    assert len(undressed(text)) <= len(text)
    assert len(boxes("\\boxed{" * 30_000)) == 0
    assert len(answer_lines("Answer: " * 30_000 + text)) <= 1
