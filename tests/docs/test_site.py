"""The site has every document in its navigation, every public name in its reference, and links that work."""

import functools
import html.parser
import http.server
import re
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path

import pytest

import gymq
from gymq.cli import all_commands
from tests.support.browser import browser, needs_browser

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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocstrings", reason="run `make site`: it installs what builds the site")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_page_of_the_commands_lists_them_and_has_the_help_of_each(site):
    text = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    assert not [name for name in all_commands() if f'id="gymq-{name}"' not in text]
    lines = [html.escape(command.line, quote=False) for command in all_commands().values()]
    assert not [line for line in lines if f"<td>{line}</td>" not in text]
    assert "--max-staleness" in text


def test_the_site_is_built_and_its_links_lead_somewhere(site):
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 60
    dead = []
    for page, links in pages.items():
        for link in links.targets:
            place, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (page.parent / place).resolve() if place else page
            if target.is_dir():
                target /= "index.html"
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert not dead
    anchors = {anchor for page, links in pages.items() if page.parent.name == "api" for anchor in links.anchors}
    assert {f"gymq.{name}" for name in gymq.__all__ if name != "Environment"} <= anchors


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@needs_browser
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("change verifier rescore", "files.html"),
        ("duplicate rows", "files.html"),
        ("unit tests", "sandbox.html"),
        ("rubric", "judges.html"),
        ("tools", "tools.html"),
        ("RowsWanted", "reference/api/environments.html"),  # no guide is about it
    ],
)
async def test_the_search_finds_guides_before_the_reference(address, query, first):
    async with browser() as page:
        await page.open(f"{address}index.html?{urllib.parse.urlencode({'q': query})}")
        found = await page.until("document.querySelector('.md-search-result__link')?.href")
    assert urllib.parse.urlsplit(found).path == f"/{first}"
