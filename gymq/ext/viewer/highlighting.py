"""Code as spans, coloured by what they are in its language."""

from __future__ import annotations

import re
from itertools import groupby

from gymq.ext.viewer.tree import Node, element

MAX_CHARS = 20_000  # some lexers take time that grows with the square of a text

TRACEBACK, TRACEBACK_LANGUAGE = "Traceback (most recent call last)", "pytb"
LANGUAGE_OF_FIELD = {
    **dict.fromkeys(("code", "python", "script", "program", "source", "cell"), "python"),
    **dict.fromkeys(("command", "cmd", "bash", "shell"), "bash"),
    **dict.fromkeys(("sql", "query"), "sql"),
    **dict.fromkeys(("patch", "diff"), "diff"),
    "latex": "latex",
    "html": "html",
}
"""The language that a field of some JSON holds, by its name; the page has the same table in `json.js`."""

_NAME = re.compile(r"[A-Za-z0-9_+#.-]{1,30}")
_KINDS = (
    ("Comment", "comment"),
    ("Keyword", "keyword"),
    ("Operator.Word", "keyword"),
    ("Literal.String", "string"),
    ("Literal.Number", "figure"),
    ("Name.Function", "named"),
    ("Name.Class", "named"),
    ("Name.Tag", "named"),
    ("Name.Attribute", "builtin"),
    ("Name.Decorator", "builtin"),
    ("Name.Builtin", "builtin"),
    ("Name.Exception", "removed"),
    ("Generic.Deleted", "removed"),
    ("Generic.Error", "removed"),
    ("Generic.Traceback", "removed"),
    ("Generic.Inserted", "added"),
    ("Generic.Heading", "keyword"),
    ("Generic.Subheading", "keyword"),
)


def highlighted(code: str, language: str) -> list[Node]:
    """Return code as nodes; one text if the language is not known or the code is too long."""
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    if len(code) > MAX_CHARS or not _NAME.fullmatch(language):
        return [code]
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return [code]
    nodes: list[Node] = []
    code = code.replace("\r\n", "\n").replace("\r", "\n")  # as lexers read it
    left = len(code)  # some lexers know a last line by its end only: it is lent one
    for kind, tokens in groupby(lexer.get_tokens(f"{code}\n"), lambda token: _kind(str(token[0])[len("Token.") :])):
        text = "".join(text for _, text in tokens)[:left]
        left -= len(text)
        if text:
            nodes.append(element("span", {"class": kind}, [text]) if kind else text)
    return nodes


def _kind(token: str) -> str:
    return next((kind for start, kind in _KINDS if token == start or token.startswith(f"{start}.")), "")
