"""Add the help of every command to the page of the site that lists them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cyclopts.docs.markdown import generate_markdown_docs
from mkdocs.structure.pages import Page

from gymq.cli import all_commands, make_app

PAGE = "reference/cli.md"


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Return the page with a section for each command."""
    return "\n\n".join([markdown, *_sections()]) if page.file.src_uri == PAGE else markdown


def _sections() -> Iterator[str]:
    for name in all_commands():
        app = make_app(name)
        with app.app_stack([app]):
            text = generate_markdown_docs(app, commands_filter=[name], heading_level=2, generate_toc=False)
        yield f"## gymq {name}\n\n{text.replace(' *[default: False]*', '')}"
