"""Add the list of the commands and the help of each to the page of the site about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cyclopts.docs.markdown import generate_markdown_docs
from mkdocs.structure.pages import Page

from gymq.cli import GROUPS, all_commands, make_app

PAGE = "reference/cli.md"


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Return the page with a table of the commands and a section for each."""
    return "\n\n".join([markdown, _table(), *_sections()]) if page.file.src_uri == PAGE else markdown


def _table() -> str:
    commands = sorted(all_commands().items(), key=lambda command: GROUPS.index(command[1].group))
    rows = [f"| [`gymq {name}`](#gymq-{name}) | {found.line} |" for name, found in commands]
    return "\n".join(["| command | purpose |", "| --- | --- |", *rows])


def _sections() -> Iterator[str]:
    for name in all_commands():
        app = make_app(name)
        with app.app_stack([app]):
            text = generate_markdown_docs(app, commands_filter=[name], heading_level=2, generate_toc=False)
        yield f"## gymq {name}\n\n{text.replace(' *[default: False]*', '')}"
