"""The search service and the web from a case's script."""

import json
from typing import Any

import pytest
from gymq.workers.resources.google_search.pages import PageError
from gymq.workers.resources.google_search.search import SearchFailed

from ..scripted import ScriptedComponents


def install(author: Any, components: ScriptedComponents) -> None:
    pytest.importorskip("trafilatura", reason='needs pip install "gymq[web-search]"')
    web = ScriptedWeb(components)
    author.service.request = web.request
    author.pages.fetch = web.fetch
    extract = author.extract

    async def extract_or_scripted(page: bytes) -> str | None:
        return await extract(page) if web.text is None else web.text[0]

    author.extract = extract_or_scripted


class ScriptedWeb:
    """Answers what would go over the network."""

    def __init__(self, components: ScriptedComponents) -> None:
        self._components = components
        self.text: tuple[str | None] | None = (
            None  # what extraction makes of the page fetched last, if that is scripted
        )

    async def request(self, query: str) -> tuple[int, str, bytes]:
        reply = self._components.next("search", {"call": "search", "query": query}, SearchFailed)
        if "raise" in reply:
            raise SearchFailed(reply["raise"])
        body = reply["text"] if "text" in reply else json.dumps(reply.get("json"))
        return reply["status"], "", body.encode()

    async def fetch(self, url: str) -> tuple[int, str, bytes]:
        reply = self._components.next("page", {"call": "page", "url": url}, PageError)
        if "raise" in reply:
            raise PageError(reply["raise"])
        self.text = (reply["text"],) if "text" in reply else None
        html = "<html></html>" if "text" in reply else reply["html"] or ""
        return 200, "", html.encode()
