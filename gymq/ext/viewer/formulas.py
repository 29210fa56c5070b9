"""LaTeX formulas as MathML, of which only elements and attributes that show something are kept.

LaTeX can link, style and include; what it says beyond mathematics is dropped.
"""

from __future__ import annotations

import html
import re
from xml.etree.ElementTree import Element

from gymq.ext.viewer.tree import Node, element

MAX_CHARS = 4000

_TAGS = (
    "math mrow mi mn mo ms mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mmultiscripts "
    "mprescripts none mtable mtr mtd mstyle mpadded mphantom"
)
_ATTRIBUTES = (
    "display displaystyle scriptlevel stretchy fence form columnalign mathvariant accent accentunder linethickness "
    "movablelimits largeop separator symmetric minsize maxsize lspace rspace width height depth"
)
_KNOWN_TAGS = frozenset(_TAGS.split())
_KNOWN_ATTRIBUTES = frozenset(_ATTRIBUTES.split())
_VALUE = re.compile(r"[A-Za-z0-9. %+-]{1,40}")
_ENTITY = re.compile(r"&#x[0-9A-Fa-f]{1,6};")
# Environments that the library does not know, as those that look alike.
_ALIKE = {"aligned": "align*", "split": "align*", "gathered": "gather*", "dcases": "cases", "smallmatrix": "matrix"}
_ENVIRONMENT = re.compile(r"(\\(?:begin|end)\{)(" + "|".join(_ALIKE) + r")(\})")


def formula(latex: str, *, is_block: bool) -> list[Node]:
    """Return a formula as an element; its source as code if it cannot be read or the library is not installed."""
    try:
        from latex2mathml.converter import convert_to_element
    except ImportError:
        return _source(latex)
    if len(latex) > MAX_CHARS:
        return _source(latex)
    known = _ENVIRONMENT.sub(lambda match: match[1] + _ALIKE[match[2]] + match[3], latex)
    try:
        tree = convert_to_element(known, display="block" if is_block else "inline")
        return _kept(tree, levels=60)
    except Exception:  # the library raises any of many errors at what is not LaTeX
        return _source(latex)


def _source(latex: str) -> list[Node]:
    return element("code", {"class": "formula"}, [latex])


def _kept(found: Element, levels: int) -> list[Node]:
    """Return an element with the harmless part of what it has."""
    if not levels:
        raise ValueError("the formula is nested too deeply")
    attributes = {
        name: value for name, value in found.attrib.items() if name in _KNOWN_ATTRIBUTES and _VALUE.fullmatch(value)
    }
    if found.tag == "menclose":
        attributes["class"] = "boxed"
    children: list[Node] = [_text(found.text)] if found.text else []
    for child in found:
        children.append(_kept(child, levels - 1))
        if child.tail:
            children.append(_text(child.tail))
    return element(found.tag if found.tag in _KNOWN_TAGS else "mrow", attributes, children)


def _text(text: str) -> str:
    """Return the text for which the library writes numbers of characters."""
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text)
