"""Texts of models as trees of elements: what Markdown, code and formulas become, and what no text becomes."""

from collections.abc import Iterator
from typing import Any

import pytest

from gymq.ext.viewer.formulas import formula
from gymq.ext.viewer.highlighting import highlighted
from gymq.ext.viewer.rendering import MAX_CHARS, Rendering, RichText
from gymq.ext.viewer.rich_text import markdown

_TAGS = (
    "p blockquote ul ol li strong em s table thead tbody tr th td h3 h4 h5 h6 br hr pre code span div img "
    "math mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd mstyle"
)
_ATTRIBUTES = (
    "class title start alt data-language display displaystyle scriptlevel stretchy fence form "
    "columnalign mathvariant accent accentunder linethickness movablelimits width src"
)
TAGS, ATTRIBUTES = set(_TAGS.split()), set(_ATTRIBUTES.split())
ENDLESS = ["[", "![", "[a](", "> ", "`", "*a ", "a_", "- ", "$a", "\\[\n", "$$\n", "|a", "<", "&"]
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def elements(nodes: list[Any]) -> Iterator[list[Any]]:
    for node in nodes:
        if not isinstance(node, str):
            yield node
            yield from elements(node[2:])


def tags(nodes: list[Any]) -> list[str]:
    return [one[0] for one in elements(nodes)]


def text_of(nodes: list[Any]) -> str:
    return "".join(node if isinstance(node, str) else text_of(node[2:]) for node in nodes)


def test_markdown_becomes_elements() -> None:
    source = "# Plan\none **b** `c`\ntwo\n\n- x\n- y\n\n| a | b |\n|--:|---|\n| 1 | 2 |"
    shape = ["h3", "p", "strong", "code", "br", "ul", "li", "li", "div", "table"]
    assert tags(markdown(source))[: len(shape)] == shape
    assert ["td", {"class": "right"}, "1"] in list(elements(markdown(source)))


def test_code_is_coloured_in_its_language_and_stays_the_same_text() -> None:
    code = "def f():\n    return 'x'  # why\n"
    block: Any
    (block,) = markdown(f"```python\n{code}```")
    assert block[:2] == ["pre", {"class": "code", "data-language": "python"}]
    assert {one[1]["class"] for one in elements(block[2:])} == {"keyword", "named", "string", "comment"}
    assert text_of(block[2:]) == code
    assert highlighted("x = 1", "no such language") == ["x = 1"]


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_last_line_of_a_traceback_is_coloured_as_the_error_that_it_names(end: str) -> None:
    text = f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\nIndexError: out of range{end}'
    nodes = highlighted(text, "pytb")
    assert ["span", {"class": "removed"}, "IndexError"] in nodes
    assert text_of(nodes) == text


@pytest.mark.parametrize("source", ["$x^2$", "\\(x^2\\)", "$$x^2$$", "\\[\nx^2\n\\]", "a\n$$\n= x^2\n$$"])
def test_formulas_become_mathml(source: str) -> None:
    assert "msup" in tags(markdown(source))


@pytest.mark.parametrize("source", ["it costs $5 or $6", "$ x $", "`$x$`", "\\$x\\$", "$x", "$$", "\\[ x"])
def test_what_is_no_formula_stays_text(source: str) -> None:
    assert "math" not in tags(markdown(source))


def test_aligned_equations_and_the_boxed_answer_are_shown() -> None:
    assert "mtr" in tags([formula(r"\begin{aligned}a&=b\\c&=d\end{aligned}", is_block=True)])
    boxed = formula(r"\boxed{42}", is_block=False)
    assert any(one[1].get("class") == "boxed" for one in elements([boxed]))
    assert text_of([boxed]) == "42"


@pytest.mark.parametrize("source", [r"\frac{", r"x^x^x", "x" * 5000, r"\sqrt{" * 300 + "}" * 300, r"\begin{pmatrix}"])
def test_a_formula_that_cannot_be_read_is_shown_as_its_source(source: str) -> None:
    assert formula(source, is_block=False) == ["code", {"class": "formula"}, source]


@pytest.mark.parametrize(
    "source",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg onload=alert(1)>",
        "<math><mtext><style><img src=x onerror=alert(1)></style></mtext></math>",
        "[a](javascript:alert(1))",
        "[a](data:text/html,<script>alert(1)</script>)",
        "<javascript:alert(1)>",
        "[a]: javascript:alert(1)\n\n[a]",
        "![a](https://example.org/x.png)",
        "![a](data:text/html;base64,AAAA)",
        "![a](data:image/svg+xml;base64,AAAA)",
        "```html onload=alert(1)\n<b>\n```",
        "```<img>\nx\n```",
        "$\\href{javascript:alert(1)}{x}$",
        "$\\style{background:url(//x)}{x}$",
        "$\\class{card}{x}$",
        "$\\text{<img src=x onerror=alert(1)>}$",
        "$\\mathrm{</mi><script>}$",
        "$\\color{red;x:url(y)}x$",
        "> " * 400 + "x",
        "- " * 400 + "x",
    ],
)
def test_hostile_markdown_becomes_nothing_but_known_elements(source: str) -> None:
    for tag, attributes, *_ in elements(markdown(source)):
        assert tag in TAGS - {"img"}
        assert set(attributes) <= ATTRIBUTES - {"src"}


def test_an_address_is_shown_and_leads_nowhere() -> None:
    nodes = markdown("see [here](https://example.org/x)")
    assert text_of(nodes) == "see here (https://example.org/x)"
    assert "a" not in tags(nodes)


def test_an_image_within_a_text_is_shown() -> None:
    (image,) = (one for one in elements(markdown(f"![a dot]({PIXEL})")) if one[0] == "img")
    assert image == ["img", {"src": PIXEL, "alt": "a dot"}]


@pytest.mark.parametrize(
    "mark", ["[", "![", "[a](", "> ", "`", "*a ", "a_", "- ", "$a", "\\[\n", "$$\n", "|a", "<", "&"]
)
def test_marks_without_end_are_rendered_within_the_limits_and_lose_nothing(mark: str) -> None:
    assert len(text_of(markdown((mark * MAX_CHARS)[:MAX_CHARS]))) <= 2 * MAX_CHARS


@pytest.mark.nightly
async def test_a_text_that_takes_too_long_is_the_only_one_not_rendered() -> None:
    rendering = Rendering()
    try:
        slow = RichText("a " * (MAX_CHARS // 2), "java")  # its lexer needs time that grows with the square
        long = RichText("x" * (MAX_CHARS + 1))
        first, second, third, fourth = await rendering.render(
            [RichText("**a**"), slow, long, RichText("x = 1", "python")]
        )
    finally:
        rendering.close()
    assert tags(first or []) == ["p", "strong"]
    assert (second, third) == (None, None)
    assert text_of(fourth or []) == "x = 1"
