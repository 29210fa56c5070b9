"""Markdown as a tree of elements: paragraphs, lists, tables, code and formulas.

HTML in a text stays text. A link is shown with its address and leads nowhere, and of images only those are shown that
are in the text themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from gymq.ext.viewer.formulas import MAX_CHARS as MAX_FORMULA_CHARS
from gymq.ext.viewer.formulas import formula
from gymq.ext.viewer.highlighting import highlighted
from gymq.ext.viewer.tree import Node, element

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token


IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+")
"""The images that may be shown. None of these formats holds a program or a link."""

_PLAIN_TAGS = {"p", "blockquote", "ul", "li", "strong", "em", "s", "thead", "tbody", "tr", "th", "td", "table"}
_MATHS = {"$$": "$$", "\\[": "\\]", "\\(": "\\)", "$": "$"}


def markdown(text: str) -> list[Node]:
    """Return a text in Markdown as nodes."""
    return _nodes(_parser().parse(text))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])
    # Addresses are shown, not followed; all are links to the parser, so that all look alike.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    parser.inline.ruler.before("escape", "formula", _inline_formula)
    stops = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("fence", "formula_block", _block_formula, stops)  # type: ignore[arg-type]
    return parser


# Formulas -------------------------------------------------------------------------------------------------------------


def _inline_formula(state: StateInline, silent: bool) -> bool:
    found = _formula_at(state.src, state.pos, state.posMax)
    if found is None:
        return False
    opener, end = found
    if not silent:
        token = state.push("formula", "", 0)
        token.content = state.src[state.pos + len(opener) : end - len(opener)]
        token.meta = {"is_block": opener in ("$$", "\\[")}
    state.pos = end
    return True


def _formula_at(text: str, start: int, end: int) -> tuple[str, int] | None:
    """Return the opening mark of the formula at a position, and the position behind it."""
    opener = next((mark for mark in _MATHS if text.startswith(mark, start)), None)
    if opener is None:
        return None
    begin = start + len(opener)
    close = text.find(_MATHS[opener], begin, min(end, begin + MAX_FORMULA_CHARS))
    inside = text[begin:close] if close > begin else ""
    if not inside.strip():
        return None
    behind = close + len(opener)
    # Two amounts in dollars are not a formula: one is not followed by a figure, and hugs what it encloses.
    if opener == "$" and (inside[0].isspace() or inside[-1] in " \t\n\\" or text[behind : behind + 1].isdigit()):
        return None
    return opener, behind


def _block_formula(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Read a formula over whole lines, which may look like lists and headings."""
    start = state.bMarks[first] + state.tShift[first]
    opener = state.src[start : start + 2]
    if opener not in ("$$", "\\["):
        return False
    closer = _MATHS[opener]
    close = state.src.find(closer, start + 2, min(state.eMarks[last - 1], start + MAX_FORMULA_CHARS))
    if close < 0:
        return False
    line = first
    while line < last and state.eMarks[line] < close:
        line += 1
    if line >= last or state.src[close + 2 : state.eMarks[line]].strip() or not state.src[start + 2 : close].strip():
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content = state.src[start + 2 : close]
        token.meta = {"is_block": True}
        state.line = line + 1
    return True


# Elements -------------------------------------------------------------------------------------------------------------


def _nodes(tokens: Iterable[Token]) -> list[Node]:
    root: list[Node] = []
    open_elements: list[list[Any]] = [root]
    for token in tokens:
        if token.nesting > 0:
            opened = _opened(token)
            if not token.hidden:
                open_elements[-1].append(_scrolled(opened) if token.tag == "table" else opened)
            # The paragraphs of a tight list are none: what they hold belongs to the list's entry.
            open_elements.append(open_elements[-1] if token.hidden else opened)
        elif token.nesting < 0:
            open_elements.pop()
            if token.type == "link_close":
                _tell_address(open_elements[-1])
        else:
            open_elements[-1].extend(_content(token))
    return root


def _opened(token: Token) -> list[Node]:
    if token.type == "heading_open":
        return element(f"h{min(6, int(token.tag[1:]) + 2)}")
    if token.type == "link_open":
        return element("span", {"class": "address", "title": str(token.attrs.get("href", ""))})
    if token.tag == "ol":
        start = token.attrs.get("start", 1)
        return element("ol", {"start": str(start)})
    if token.tag in ("th", "td"):
        side = str(token.attrs.get("style", "")).rpartition(":")[2]
        return element(token.tag, {"class": side} if side in ("right", "center") else {})
    return element(token.tag if token.tag in _PLAIN_TAGS else "div")


def _scrolled(table: list[Any]) -> list[Node]:
    return element("div", {"class": "scroll"}, [table])


def _tell_address(parent: list[Any]) -> None:
    """Put the address of a link behind its text, unless that is the address."""
    link = parent[-1]
    address = link[1]["title"]
    if address and "".join(_texts(link[2:])) != address:
        parent.append(element("span", {"class": "quiet target"}, [f" ({address})"]))


def _content(token: Token) -> list[Node]:
    make: Callable[[Token], list[Node]] | None = _CONTENT.get(token.type)
    if make is not None:
        return make(token)
    return [token.content] if token.content else []


def _code(token: Token) -> list[Node]:
    language = token.info.split()[0] if token.info.split() else ""
    return [
        element("pre", {"class": "code", "data-language": language[:30]}, highlighted(token.content, language.lower()))
    ]


def _image(token: Token) -> list[Node]:
    address, shown = str(token.attrs.get("src", "")), token.content
    if IMAGE.fullmatch(address):
        return [element("img", {"src": address, "alt": shown})]
    return [element("span", {"class": "address", "title": address}, [f"image: {shown} ({address})"])]


_CONTENT: dict[str, Callable[[Token], list[Node]]] = {
    "inline": lambda token: _nodes(token.children or []),
    "softbreak": lambda token: [element("br")],
    "hardbreak": lambda token: [element("br")],
    "hr": lambda token: [element("hr")],
    "code_inline": lambda token: [element("code", None, [token.content])],
    "code_block": _code,
    "fence": _code,
    "image": _image,
    "formula": lambda token: [formula(token.content, is_block=token.meta["is_block"])],
}


def _texts(nodes: Iterable[Node]) -> Iterable[str]:
    for node in nodes:
        if isinstance(node, str):
            yield node
        else:
            yield from _texts(node[2:])
