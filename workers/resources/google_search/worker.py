"""google_search: multiple-choice questions to be answered with a web search. The boxed letter decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pydantic
from gymq.workers.resources.google_search.pages import PageError, Pages
from gymq.workers.resources.google_search.search import GoogleSearch, SearchFailed

import gymq
from gymq.authoring import importing

BOX = "\\boxed{"


class QuestionRow(gymq.Row):
    expected_answer: str
    task_difficulty_qwen3_32b_avg_8: float  # passed through


class SearchOptions(gymq.WorkerOptions):
    google_api_key: pydantic.SecretStr
    google_cx: str
    search_url: str = "https://www.googleapis.com/customsearch/v1"
    timeout_s: pydantic.PositiveFloat = 10.0  # for one query, and for one page
    allow_private_addresses: bool = False  # let `browse` read pages of private networks


class WebSearch(gymq.Resources[QuestionRow]):
    """Reward 1 if the last message has the expected option in its first box."""

    reward_range = (0.0, 1.0)
    needs = frozenset({"network"})

    Options = SearchOptions

    extraction_timeout_s: ClassVar[float] = 20.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.options
        key = options.google_api_key.get_secret_value()
        self.service = GoogleSearch(options.search_url, key, options.google_cx, options.timeout_s)
        self.pages = Pages(options.timeout_s, options.allow_private_addresses)

    async def start(self) -> None:
        with importing("web-search"):
            from gymq.workers.resources.google_search import extraction
        self._extraction = extraction
        await self.service.start()
        await self.pages.start()

    async def stop(self) -> None:
        await self.service.stop()
        await self.pages.stop()

    @gymq.tool
    async def search(self, query: str) -> dict[str, str]:
        """Search the web. The results are the search service's JSON: titles, links and snippets."""
        try:
            return {"search_results": await self.service.search(query)}
        except SearchFailed as error:
            return {"search_results": f"Error: Unexpected error - {error}"}

    @gymq.tool
    async def browse(self, url: str) -> dict[str, str]:
        """Read a web page: its main text, cut in the middle if it has more than 10,000 words."""
        try:
            page = await self.pages.read(url)
            return {"page_content": await self._text(page) if page else "No HTML found"}
        except (PageError, TimeoutError) as error:
            return {"page_content": f"Error: Unexpected error = {error or 'the page is too complicated'}"}

    async def _text(self, page: bytes) -> str:
        text = await self.extract(page)
        return self._extraction.shortened(text) if text else "No text found"

    async def extract(self, page: bytes) -> str | None:
        """Return the main text of a page; None if it has none."""
        return await self.processes.run(self.extraction_timeout_s, self._extraction.main_text, page)

    async def verify(self, request: gymq.VerifyRequest[QuestionRow]) -> gymq.Verdict:
        option = boxed_option(last_text(request.response))
        return gymq.Verdict(float(option == request.row.expected_answer), parsed_option=option)


def last_text(response: Mapping[str, Any]) -> str:
    """Return the text of the last output item, if that is a message of the assistant."""
    item = response["output"][-1] if response["output"] else {}
    if item.get("type") != "message" or item.get("role") != "assistant":
        return ""
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or [])


def boxed_option(text: str) -> str | None:
    """Return what the first box on one line holds, up to its first closing brace; None without a box."""
    for line in text.split("\n"):
        start = line.find(BOX)
        end = line.find("}", start)
        if start >= 0 and end >= 0:
            return line[start + len(BOX) : end]
    return None
