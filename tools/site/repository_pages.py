"""Make pages of the site of Markdown files outside docs/, and let links between files of the repository work there.

MkDocs knows the files below docs/ only. What these link to elsewhere in the repository, and what the navigation names
there, joins them under its path in the repository. The file names that code blocks have become titles of the blocks.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = "docs/"
# The search weighs a title 1000 times as much as text. With this factor, a title in the reference ranks above text in a
# guide, and below a title in a guide.
REFERENCE_BOOST = 0.02

_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^```(\w+) ([^\n=]+)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add every file of the repository that a page links to, and the pages that those link to in turn."""
    waiting = [DOCS + file.src_uri for file in files.documentation_pages()] + _named(config.nav)
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).is_file():
            continue
        seen.add(path)
        if files.get_file_from_path(_uri(path)) is None:
            files.append(File.generated(config, _uri(path), abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            text = _FENCED.sub("", (ROOT / path).read_text(encoding="utf-8"))
            waiting += [_target(path, found[2]) for found in _LINK.finditer(text) if "://" not in found[2]]
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the places that files have on the site, and let the search rank guides first."""
    if not _is_guide(page.file):
        page.meta["search"] = {"boost": REFERENCE_BOOST}
    own = DOCS + page.file.src_uri if (ROOT / DOCS / page.file.src_uri).is_file() else page.file.src_uri

    def moved(found: re.Match[str]) -> str:
        if "://" in found[2]:
            return found[0]
        uri = posixpath.relpath(_uri(_target(own, found[2])), posixpath.dirname(page.file.src_uri) or ".")
        return f"{found[1]}{uri}{found[3] or ''}{found[4]}"

    return _FENCE.sub(_titled, _LINK.sub(moved, markdown))


def _is_guide(file: File) -> bool:
    return "/" not in file.src_uri and (ROOT / DOCS / file.src_uri).is_file()


def _titled(found: re.Match[str]) -> str:
    return f"```{found[1]}" + ("" if found[2].strip() == "run" else f' title="{found[2].strip()}"')


def _target(path: str, link: str) -> str:
    """Return what a link of a file leads to, as a path in the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _uri(path: str) -> str:
    """Return the place of a file of the repository among the sources of the site."""
    return "index.md" if path == "README.md" else path.removeprefix(DOCS)


def _named(nav: Any) -> list[str]:
    """Return the files that the navigation names."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav or []
    return [path for part in parts for path in _named(part)]
