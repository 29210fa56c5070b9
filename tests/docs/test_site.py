"""The site has every document in its navigation, every public name in its reference, and links that work."""

import html.parser
import re
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

import gymq

from .blocks import ROOT

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
_PAGE = re.compile(r": ([\w/.]+\.md)$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^::: gymq\.(\w+)$", re.MULTILINE)


class Links(html.parser.HTMLParser):
    """Collects what a page links to, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and "://" not in value:
                self.targets.add(value)


def test_the_navigation_has_every_document_once():
    named = _PAGE.findall(CONFIG)
    assert len(set(named)) == len(named)
    documents = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert documents <= set(named)
    assert all((ROOT / name).is_file() for name in set(named) - documents)


def test_the_reference_has_every_public_name_once():
    pages = sorted((ROOT / "docs" / "reference" / "api").glob("*.md"))
    names = [name for page in pages for name in _DIRECTIVE.findall(page.read_text(encoding="utf-8"))]
    # `Environment` is another name of `Resources`.
    assert sorted([*names, "Environment"]) == sorted(gymq.__all__)


def test_the_site_is_built_and_its_links_lead_somewhere(tmp_path):
    pytest.importorskip("mkdocstrings", reason="run `make site`: it installs what builds the site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {page: Links(page) for page in tmp_path.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 60
    dead = []
    for page, links in pages.items():
        for link in links.targets:
            place, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (page.parent / place).resolve() if place else page
            if target.is_dir():
                target /= "index.html"
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                dead.append(f"{page.relative_to(tmp_path)}: {link}")
    assert not dead
    anchors = {anchor for page, links in pages.items() if page.parent.name == "api" for anchor in links.anchors}
    assert {f"gymq.{name}" for name in gymq.__all__ if name != "Environment"} <= anchors
