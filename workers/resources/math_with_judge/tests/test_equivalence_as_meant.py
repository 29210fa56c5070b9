"""Families of answers that say the same, and of others that only look alike."""

from __future__ import annotations

import signal
import time
from fractions import Fraction

import pytest
from gymq.workers.resources.math_with_judge.rules import as_meant, end_of_huge, last_answer


@pytest.fixture(autouse=True)
def no_alarm(monkeypatch):
    """The library gives each step seconds on the clock, which a busy machine does not keep; a worker counts others."""
    monkeypatch.setattr(signal, "alarm", lambda _seconds: 0)


def earns(expected: str, answer: str) -> bool:
    return as_meant(expected, f"So it is \\boxed{{{answer}}}.").reward == 1.0


TINY = [
    *[
        (rf"\frac{{1}}{{2^{{{n}}}}}", rf"\frac{{1}}{{2^{{{m}}}}}")
        for n, m in ((20, 21), (40, 39), (99, 98), (2000, 2001))
    ],
    (r"10^{-9}", r"10^{-8}"),
    ("0.00000012", "0.00000013"),
    (r"6.63 \times 10^{-34}", r"1.05 \times 10^{-34}"),
    (r"\frac{1}{52!}", r"\frac{1}{51!}"),
    ("e^{-50}", "e^{-51}"),
    (r"\sqrt{10^{40}+1}", "10^{20}"),
    (r"1-\frac{1}{2^{300}}", "1"),
    (r"2+10^{-20}", "2"),
]


@pytest.mark.parametrize(("one", "other"), TINY)
def test_different_numbers_are_different_however_close(one, other):
    assert not earns(one, other)
    assert not earns(other, one)
    assert earns(one, one)


SAME = [
    ("12", "１２"),
    ("(1,2)", "（1，2）"),
    ("1 234 567", "1234567"),
    (r"\sqrt{2}", "sqrt 2"),
    ("log(x,2)", r"\log_2 x"),
    (r"\mathrm{C}_{5}^{2}", "10"),
    ("x != 3", r"x \neq 3"),
    (r"12.5\%", r"12.5 \text{ percent}"),
    (r"7:00 \text{ p.m.}", r"7 \text{ PM}"),
    ("B", r"\textbf{(B)}\ 42"),
    (r"\frac{2}{3}", r"0.\overline{6}"),
    (r"0.\overline{142857}", r"\frac{1}{7}"),
    (r"\frac{61}{495}", r"0.1\overline{23}"),
    (r"\frac{1}{3}", "0.(3)"),
    (r"\frac{1}{3}", "0.333333"),
    (r"\pi", "3.1415927"),
    ("3*pi/4", r"\frac{3\pi}{4}"),
    ("x**2+1", "x^2+1"),
    ("sqrt(2)/2", r"\frac{\sqrt{2}}{2}"),
    (r"\frac{\sqrt{3}}{2}", "√3/2"),
    (r"2\sqrt{3}", "2√3"),
    ("x^{10}", "x^10"),
    ("x^2y^3", "x²y³"),
    ("sin(x)", r"\sin x"),
    (r"\cos(2x)", "cos(2*x)"),
    ("exp(2)", "e^2"),
    (r"7\mathrm{e}^{2}", "7e^2"),
    (r"3+\mathrm{i}", "3+i"),
    ("1234567", r"1\,234\,567"),
    ("1234567", "1,234,567"),
    ("1234567", "1\u2009234\u2009567"),
    ("57", "57."),
    ("57", r"\text{The answer is } 57"),
    ("57", r"\mathbf{57}"),
    ("57", "**57**"),
    ("57", "$57$"),
    ("(4,5)", r"\bigl(4,5\bigr)"),
    ("(4,5)", r"\left(4,5\right)"),
    ("-3", "\u22123"),
    (r"\frac{1}{2}", "½"),
    ("90^{\\circ}", "90°"),
    ("7", r"7 \text{ cm}"),
    (r"7 \text{ cm}", "7"),
    (r"7 \text{ cm}", r"7\,\mathrm{cm}"),
    (r"7 \text{ km}", r"7 \text{ kilometres}"),
    (r"12 \text{ ways}", r"12 \text{ different ways}"),
    ("ABC", "ABC"),
    ("Tuesday", r"\text{tuesday}"),
    (r"\text{No}", "no"),
    (r"\angle PQR", r"\angle RQP"),
    (r"\triangle ABC", r"\triangle BCA"),
    ("2021-11-04", "2021-11-4"),
    ("3-6", "3\u20136"),
    ("4:20", "04:20"),
    (r"\frac{1}{8}", r"\cos\frac{\pi}{7}\cos\frac{2\pi}{7}\cos\frac{3\pi}{7}"),
    ("1", r"\sqrt[3]{2+\sqrt{5}}+\sqrt[3]{2-\sqrt{5}}"),
    ("xy", "yx"),
    ("2ab", "2ba"),
    ("{1,2}", r"\{2,1\}"),
    ("x=5", "5"),
    (r"\begin{pmatrix}1&2\\3&400\end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 400 \end{pmatrix}"),
    ("f''(x)", r"f^{\prime\prime}(x)"),
    ("x'", "x\u2032"),
    ("f'(x)=2x", "2x"),
    ("101_2", "101_{2}"),
    ("101_2", "0101_2"),
    ("101_2", "101"),
    (r"\emptyset", r"\varnothing"),
    (r"\emptyset", r"\{\}"),
    (r"7:30 \text{ PM}", "7:30 p.m."),
    ("7:30", "7:30 PM"),
    (r"6 \text{ a.m.}", r"6 \text{ AM}"),
    ("A,B,C", "A, B, and C"),
    ("1½", r"\frac{3}{2}"),
    ("x⁻¹", r"\frac{1}{x}"),
    (r"25 \text{ mph}", r"25 \text{ miles per hour}"),
    (r"12 \text{ cm}^2", r"12 \text{ square cm}"),
    (r"5 \text{ million}", "5,000,000"),
    (r"\$5\text{ million}", r"\$5,000,000"),
    (r"\$5", r"5 \text{ dollars}"),
]


@pytest.mark.parametrize(("expected", "answer"), SAME)
def test_the_same_answer_may_be_written_otherwise(expected, answer):
    assert earns(expected, answer)


OTHERS = [
    *[("ABC", other) for other in ("ACB", "BAC", "BCA", "CAB", "CBA", "AB", "ABCC")],
    *[("listen", other) for other in ("silent", "tinsel", "enlist")],
    ("HHT", "HTH"),
    ("GATTACA", "ACATTAG"),
    (r"\angle PQR", r"\angle QPR"),
    ("2023-10-05", "2023-05-10"),
    ("3-1", "4-2"),
    ("3-1", "2"),
    ("12/03/1987", "03/12/1987"),
    ("3:1", "6:2"),
    ("9-6", "6-3"),
    (r"7 \text{ km}", r"7 \text{ m}"),
    (r"6 \text{ PM}", r"6 \text{ AM}"),
    (r"5 \text{ apples}", r"5 \text{ pears}"),
    (r"15\% \text{ profit}", r"15\% \text{ loss}"),
    (r"30^\circ \text{ north}", r"30^\circ \text{ south}"),
    (r"10 \text{ cm}^2", r"10 \text{ cm}^3"),
    (r"7\mathrm{e}^{2}", r"7\mathrm{e}^{9}"),
    ("0", r"2\,000\,000"),
    ("1234567", "1234568"),
    ("1234567.0", "1234568.0"),
    (r"\frac{1}{3}", "0.33"),
    ("7", "999 = 7"),
    ("(1,2)", "(2,1)"),
    ("x^2", "x^3"),
    (r"0.\overline{6}", "0.6"),
    ("f''(x)", "f'(x)"),
    ("f'(x)", "f(x)"),
    ("a'+b", "a+b'"),
    ("101_2", "101_3"),
    ("101_2", "5_{10}"),
    ("7:30 PM", "7:30 AM"),
    (r"25 \text{ mph}", r"25 \text{ km/h}"),
    (r"5 \text{ m/s}", r"5 \text{ m/s}^2"),
    (r"12 \text{ cm}^2", r"12 \text{ cm}"),
    (r"12 \text{ cm}^2", r"12 \text{ cubic cm}"),
    ("5", r"5 \text{ million}"),
    (r"5 \text{ million}", r"5 \text{ billion}"),
    (r"\$5", r"5 \text{ cents}"),
    ("5", r"\neq 5"),
]


@pytest.mark.parametrize(("expected", "answer"), OTHERS)
def test_an_answer_that_only_looks_alike_is_another(expected, answer):
    assert not earns(expected, answer)


@pytest.mark.parametrize(("fixed", "again"), [("", "1"), ("", "09"), ("5", "4"), ("12", "345"), ("0", "0012")])
def test_repeating_decimals_are_fractions(fixed, again):
    value = Fraction(int(fixed or "0"), 10 ** len(fixed)) + Fraction(
        int(again), (10 ** len(again) - 1) * 10 ** len(fixed)
    )
    assert earns(rf"\frac{{{value.numerator}}}{{{value.denominator}}}", rf"0.{fixed}\overline{{{again}}}")


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("\\boxed{8} no: \\boxed{9}", "9"),
        ("Width: \\boxed{5}\nArea: \\boxed{30}", "30"),
        ("<think>\\boxed{8}</think> \\boxed{9}", "9"),
        ("<think>\\boxed{8}", None),
        ("\\boxed{1} and \\boxed{2}", "1, 2"),
        ("$\\boxed{1}$, $\\boxed{2}$ or $\\boxed{3}$", "1, 2, 3"),
        ("\\boxed{9}. Again: \\boxed{9}", "9"),
        ("no box", None),
    ],
)
def test_the_answer_that_the_reply_stands_by_counts(reply, answer):
    assert last_answer(reply) == answer


def test_an_answer_without_a_box_is_the_last_one():
    assert as_meant("9", "First 8, then 9. The final answer is $9$.").reward == 1.0
    assert as_meant("8", "First 8, then 9. The final answer is $9$.").reward == 0.0
    assert as_meant("-3", "The final answer is \u22123.").reward == 1.0


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("|x - 1|", "abs(x - 1)"),
        (r"\frac{1}{3}", "0.333..."),
        (r"\frac{5}{6}", r"0.8333\ldots"),
        (r"\frac{1}{7}", "0.142857142857\u2026"),
        (r"\frac{1}{2}", r"\sin 30^\circ"),
        ("1", r"2(\sin 30^\circ)"),
        ("1", r"\tan\left(45^{\circ}\right)"),
        (r"\frac{1+\sqrt5}{4}", r"\cos{36^\circ}"),
        ("6-4, 6-3", "6-4,6-3"),
    ],
)
def test_what_says_the_same(expected, answer):
    assert earns(expected, answer)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("|x - 1|", "abs(x + 1)"),
        (r"\frac{1}{3}", "0.3..."),
        (r"\frac{1}{3}", "0.333"),
        (r"\cos 20^\circ", r"\cos 40^\circ"),
        ("6-4, 6-3", "6-3, 6-4"),
        ("6-4, 6-3", "6-4"),
        ("1:2, 3:4", "1:2, 4:3"),
    ],
)
def test_what_says_something_else(expected, answer):
    assert not earns(expected, answer)


def test_of_an_integral_the_value_counts_that_the_answer_says_it_has():
    assert earns("1", r"\int_0^1 2x\,dx = 1")
    assert earns("x^2 + C", r"\int 2x\,dx = x^2 + C")
    assert earns(r"\int f", r"\int f")
    assert not earns("1", r"\int_0^1 2x\,dx")
    assert not earns("1", r"\int_0^1 2x\,dx = 2")
    assert not earns("5", r"\int \sin(x^2) e^{x} dx")


@pytest.mark.parametrize(
    "given",
    [",".join(f"x_{number}" for number in range(40)), "x=" * 120 + "5", "+".join(["\\sin(1)"] * 20), "1" + "+0" * 120],
)
def test_an_answer_that_says_much_more_than_the_expected_one_is_another(given):
    assert not earns("5", given)
    assert earns(given, given)


@pytest.mark.parametrize("part", ["\\boxed{1} ", "\\boxed{1}, ", "\\boxed{", "answer: "])
def test_a_megabyte_is_judged_in_a_second(part):
    begin = time.process_time()
    as_meant("5", part * (1_000_000 // len(part)))
    assert time.process_time() - begin < 3.0  # a busy machine spends more


@pytest.mark.parametrize(
    "part", ["\\[", "\\(", "$", "answer: ", "final answer is ", "\\boxed{", "{", "x^", "\\frac{1}{"]
)
@pytest.mark.parametrize("in_a_box", [True, False])
def test_a_reply_that_repeats_itself_is_wrong(part, in_a_box):
    text = part * (40_000 // len(part))
    assert as_meant("5", f"\\boxed{{{text}}}" if in_a_box else text).reward == 0.0


WORDS_AND_NAMES = [
    *[("no", other, False) for other in ("on", "n", "yes", "o n")],
    ("on", "no", False),
    *[("no", other, True) for other in ("No", "NO", r"\text{no}", r"\mathrm{No}", "no.")],
    ("No", r"\text{on}", False),
    ("is", "si", False),
    ("xy", "yx", True),
    ("no solution", r"\text{No solution}", True),
    ("no solution", "solution no", False),
    *[("O'Brien", other, True) for other in ("O\u2019Brien", r"\text{O'Brien}", "o'brien")],
    *[("O'Brien", other, False) for other in ("O'Brine", "Brien", "O'Neil")],
    ("D'Alembert", r"\text{D'Alembert}", True),
    ("Mary-Jane", r"\text{Mary-Jane}", True),
    ("Mary-Jane", "Jane-Mary", False),
    *[("U.S.A.", other, True) for other in ("USA", r"\text{USA}", "U. S. A.", "U.S.A")],
    *[("U.S.A.", other, False) for other in ("U.S.S.R.", "A.S.U.", "US", "U.A.S.")],
    ("USA", "U.S.A.", True),
    ("UK", "U.K.", True),
    ("UK", "K.U.", False),
    ("St. Louis", "St Louis", True),
    ("J. Smith", "J Smith", True),
    ("J. Smith", "S. Jmith", False),
]


@pytest.mark.parametrize(("expected", "answer", "is_same"), WORDS_AND_NAMES)
def test_words_and_names_are_no_products(expected, answer, is_same):
    assert earns(expected, answer) == is_same


ORDERS = [
    *[("DBCA", other, True) for other in ("D, B, C, A", "D,B,C,A", "D B C A", "D; B; C; A", "(D, B, C, A)")],
    *[("DBCA", other, False) for other in ("DBAC", "D, B, A, C", "A, B, C, D", "D, B, C", "D, B, C, A, E")],
    *[("D, B, C, A", other, True) for other in ("DBCA", "D,B,C,A", "(D,B,C,A)", r"\text{D, B, C, A}")],
    *[("D, B, C, A", other, False) for other in ("DBAC", "D, B, A, C", "A, B, C, D", "ABCD")],
    *[("A, C", other, True) for other in ("C, A", "AC", "A and C")],
    *[("A, C", other, False) for other in ("A, B", "AB", "A", "A, B, C")],
    ("(A, B)", "(B, A)", False),
]


@pytest.mark.parametrize(("expected", "answer", "is_same"), ORDERS)
def test_an_order_of_letters_is_the_same_with_commas(expected, answer, is_same):
    assert earns(expected, answer) == is_same


INFINITIES = [
    *[(r"\infty", other, True) for other in ("oo", "inf", "infinity", "+oo", "\u221e")],
    *[("oo", other, True) for other in (r"\infty", r"+\infty")],
    *[("oo", other, False) for other in ("-oo", "0", "00", r"-\infty")],
    (r"(-\infty, 3)", "(-oo, 3)", True),
    (r"[0, \infty)", "[0, oo)", True),
    (r"[0, \infty)", "(0, oo)", False),
]


@pytest.mark.parametrize(("expected", "answer", "is_same"), INFINITIES)
def test_infinity_has_many_spellings(expected, answer, is_same):
    assert earns(expected, answer) == is_same


BINOMIALS = [
    *[(r"\binom{5}{2}", o, True) for o in ("C(5,2)", "nCr(5, 2)", "binom(5,2)", r"{5 \choose 2}", "{}_5C_2", "10")],
    *[("10", other, True) for other in ("C(5,2)", r"{}^5C_2", r"\binom{5}{3}")],
    *[("C(5,2)", other, True) for other in (r"\binom{5}{2}", "C(5, 2)", "10")],
    *[("C(5,2)", other, False) for other in (r"\binom{6}{2}", "11", "(5,2)", "C(6,2)")],
    ("C(3,0)", "C(4,0)", False),
    ("C(n,2)", r"\binom{n}{2}", True),
    (r"\binom{n}{2}", "C(n,3)", False),
]


@pytest.mark.parametrize(("expected", "answer", "is_same"), BINOMIALS)
def test_binomial_coefficients_have_many_spellings(expected, answer, is_same):
    assert earns(expected, answer) == is_same


COMPLEX = [
    *[("-1", other, True) for other in ("i^2", r"e^{i\pi}", r"e^{\pi i}", "e^(i*pi)", r"e^{-i\pi}")],
    *[("-1", other, False) for other in ("i", "i^4", r"e^{i\pi/2}", r"e^{2i\pi}")],
    ("i^2", "-1", True),
    ("i^2", "1", False),
    (r"e^{i\pi}", "1", False),
    ("i", r"e^{\frac{i\pi}{2}}", True),
    ("i", "-i", False),
    ("1+i", r"\sqrt{2}e^{i\pi/4}", True),
    ("1+i", r"\sqrt{2}e^{-i\pi/4}", False),
    ("(1+i)^2", "2i", True),
    ("(1+i)^2", "2", False),
    (r"\cos(1)+i\sin(1)", "e^{i}", True),
    ("i^2 R", "R i^2", True),
    ("i^2 R", "-R", False),
]


@pytest.mark.parametrize(("expected", "answer", "is_same"), COMPLEX)
def test_the_letter_i_is_the_imaginary_unit_of_numbers(expected, answer, is_same):
    assert earns(expected, answer) == is_same


@pytest.mark.parametrize("formula", ["|x|" * 50, "|" * 190, "x=" * 80 + "5", "(" * 7 + "x" + ")" * 7], ids=len)
def test_a_formula_that_takes_long_to_read_is_not_read(formula):
    assert end_of_huge(formula)
    assert not end_of_huge("|x-1| + |x+2| = a = b = 5")


STATEMENTS = {
    "none": [
        *("no solution", "No solutions.", r"\text{no solution}", r"\textbf{No Solution}", r"\mathrm{no\ solution}"),
        *("no real solution", "There are no real solutions", "there is no solution", "No solution exists", "no~roots"),
        *("no such number exists", r"\text{No } x \text{ exists}", "none", "None", "∅", r"\emptyset", r"\varnothing"),
        *(r"\{ \}", r"x \in \emptyset", "the empty set", r"\text{Empty set}", r"no solution (x = 2 is extraneous)"),
    ],
    "undefined": [
        *("does not exist", "DNE", r"\text{DNE}", "D.N.E.", "the limit does not exist", "Does Not Exist (DNE)"),
        *("undefined", r"\text{Undefined}", "is not defined", "doesn't exist"),
    ],
    "infinite": [
        *("infinitely many solutions", "infinitely many", r"\text{Infinitely many}", "infinite"),
        *("there are infinitely many solutions", "an infinite number of solutions"),
    ],
}
VALUES = [
    "0",
    r"\infty",
    r"\{0\}",
    "1 solution",
    "no unique solution",
    "all real numbers",
    r"\phi",
    "x",
    "no",
    "not none",
]


@pytest.mark.parametrize(("name", "expected"), [(name, one) for name, ones in STATEMENTS.items() for one in ones])
def test_what_is_said_in_place_of_a_value_may_be_said_in_any_way(name, expected):
    others = [one for other, ones in STATEMENTS.items() if other != name for one in ones]
    assert [one for one in STATEMENTS[name] if not earns(expected, one)] == []
    assert [one for one in [*others, *VALUES] if earns(expected, one) or earns(one, expected)] == []


def test_no_solution_of_one_kind_is_not_that_of_another_kind():
    assert earns("no integer solutions", "no solution")
    assert not earns("no real solution", "no integer solution")


def test_an_option_with_its_text_is_that_option():
    assert not earns("B", r"\textbf{(C)}\ 42")


def test_an_empty_box_is_no_answer():
    assert as_meant("4", r"Here \boxed{4}, as asked for in \boxed{}.").reward == 1.0


@pytest.mark.parametrize("end", ["It is not 5.", "It isn't $5$.", "Final answer: not equal to 5", "Not 7, and not 5."])
def test_a_number_that_a_reply_denies_is_no_answer(end):
    assert as_meant("5", end).reward == 0.0
    assert as_meant("6", f"{end} The answer is 6.").reward == 1.0
