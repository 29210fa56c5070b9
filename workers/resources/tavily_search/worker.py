"""tavily_search: questions to be answered with searches and pages of the web, by Tavily's API.

Built for questions like those of BrowseComp (Wei et al., 2025) and SimpleQA (Wei et al., 2024). Sites that hold their
answers can be kept out of the results.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any, ClassVar

import pydantic
from gymq.workers.resources.tavily_search import answers, texts
from gymq.workers.resources.tavily_search.service import Tavily, UsageLimit

import gymq
from gymq import responses
from gymq.authoring import check_installed
from gymq.judge import Question

NO_RESULTS = "[]"
NO_URL = "URL is none"
NO_QUERY = "Query is none"
EXCLUDED = "URL is in excluded domains"
URL_TOO_LONG = "URL is too long"
MAX_QUERY_CHARS = 400
MAX_URL_CHARS = 4000  # reading one may take quadratic time

Calls = list[dict[str, Any]]  # a session's calls of the service


class QuestionRow(gymq.Row):
    question: str
    ground_truth: str


class TavilyOptions(gymq.WorkerOptions):
    tavily_api_key: pydantic.SecretStr | list[pydantic.SecretStr]  # several are used in turn
    exclude_domains_file_path: Path | None = None
    exclude_domains: list[str] = pydantic.Field(default_factory=list)  # beside those of the file
    use_judge: bool = True
    hardened: bool = True  # see `gymq.judge.Labels`; False: the judge's first verdict counts
    judge_model_server: gymq.Reference | None = None
    judge_responses_create_params: dict[str, Any] = pydantic.Field(default_factory=lambda: {"input": []})
    max_retries: pydantic.PositiveInt = 5  # tries of a call that meets the usage limit
    retry_delay_seconds: pydantic.NonNegativeFloat = 30.0
    api_base_url: str | None = None  # instead of Tavily's own
    debug: bool = False  # without effect; older configurations have it
    dump_session_id_to_metrics_on_exit: bool = False  # the same

    @pydantic.field_validator("judge_responses_create_params")
    @classmethod
    def _check_params(cls, params: dict[str, Any]) -> dict[str, Any]:
        return responses.validate_params({"input": [], **params})

    @pydantic.model_validator(mode="after")
    def _check_judge(self) -> TavilyOptions:
        if self.use_judge and self.judge_model_server is None:
            raise ValueError("use_judge is on, so judge_model_server must name a model")
        return self


class TavilySearch(gymq.Resources[QuestionRow, Calls]):
    """Reward 1 if a judge model finds the answer correct or, without a judge, if it is the expected text."""

    reward_range = (0.0, 1.0)
    deterministic = False
    needs = frozenset({"judge", "network"})

    Options = TavilyOptions

    max_pages: ClassVar[int] = 1000  # remembered in one process

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.options
        keys = options.tavily_api_key if isinstance(options.tavily_api_key, list) else [options.tavily_api_key]
        secrets = [key.get_secret_value() for key in keys]
        self.service = Tavily(secrets, options.api_base_url, options.max_retries, options.retry_delay_seconds)
        self._pages: OrderedDict[str, list[str]] = OrderedDict()

    async def start(self) -> None:
        check_installed("tavily", "tavily")
        self._question = Question(answers.JUDGE_PROMPT, answers.VERDICTS, self.options.hardened)
        self._excluded = [*self.options.exclude_domains, *self._domains_of_file()]
        await self.service.start()

    async def stop(self) -> None:
        await self.service.stop()

    def _domains_of_file(self) -> list[str]:
        path = self.options.exclude_domains_file_path
        if path is None:
            return []
        try:
            notices = json.loads(path.read_text(encoding="utf-8"))["notices"]
            properties = [each for notice in notices for each in notice["properties"]]
            return [str(each["value"]) for each in properties if each.get("type") == "domain"]
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            expected = 'it has to hold {"notices": [{"properties": [{"type": "domain", "value": ...}]}]}'
            raise gymq.OptionsError(f"{self.name}: exclude_domains_file_path: {error!r}; {expected}") from None

    async def open(self, row: gymq.Row) -> Calls:
        return []

    async def open_unseeded(self) -> Calls:
        return []

    @gymq.tool
    async def web_search(self, state: Calls, query: str | None = None) -> dict[str, str]:
        """Search the web: titles, addresses and summaries of ten pages."""
        if query is None:
            return {"results_string": NO_QUERY}
        if len(query) > MAX_QUERY_CHARS:
            return {"results_string": "Query is too long"}
        try:
            found = await self.service.search(state, query, self._excluded)
        except UsageLimit:
            return {"results_string": NO_RESULTS}
        return {"results_string": texts.search_results(found)}

    @gymq.tool
    async def find_in_page(self, state: Calls, url: str | None = None, query: str | None = None) -> dict[str, str]:
        """The parts of a page that belong to a query."""
        if url is None or query is None:
            return {"results_string": NO_URL if url is None else NO_QUERY}
        if refusal := self._refusal(url):
            return {"results_string": refusal}
        try:
            content = await self.service.extract(state, url, query)
        except UsageLimit:
            return {"results_string": NO_RESULTS}
        return {"results_string": texts.found_in_page(url, query, content) if content else "No content found."}

    @gymq.tool
    async def scroll_page(
        self, state: Calls, url: str | None = None, start_index: int = 0, n: int = 2000
    ) -> dict[str, Any]:
        """A part of a page: n words from start_index on."""
        if url is None or (refusal := self._refusal(url)):
            return {"results_string": NO_URL if url is None else refusal, "total_words": 0}
        try:
            words = await self._words(state, url)
        except UsageLimit:
            return {"results_string": NO_RESULTS, "total_words": 0}
        shown = texts.scrolled(url, words, start_index, n)
        return {"results_string": shown, "total_words": len(words)}

    def _refusal(self, url: str) -> str | None:
        """Return why a page is not read, if it is not."""
        if len(url) > MAX_URL_CHARS:
            return URL_TOO_LONG
        return EXCLUDED if texts.is_excluded(url, self._excluded) else None

    async def _words(self, state: Calls, url: str) -> list[str]:
        if url not in self._pages:
            self._pages[url] = (await self.service.extract(state, url)).split()
            if len(self._pages) > self.max_pages:
                self._pages.popitem(last=False)
        self._pages.move_to_end(url)
        return self._pages[url]

    async def verify(self, request: gymq.VerifyRequest[QuestionRow, Calls]) -> gymq.Verdict:
        state = request.state
        row, reply = request.row, answers.reply_text(request.response)
        members = {"num_tool_calls": len(request.function_calls), "metrics": state or []}
        if not self.options.use_judge:
            answer = answers.answer_line(reply)
            reasoning = "compared with the expected text"
            return gymq.Verdict(
                float(answer == row.ground_truth),
                extracted_final_answer=answer,
                reasoning=reasoning,
                judge_response_create_params=None,
                judge_response=None,
                **members,
            )
        asked = self._question
        shown = asked.material(reply)
        prompt = asked.template.fill(question=row.question, reply=shown, reference=row.ground_truth)
        params = {**self.options.judge_responses_create_params, "input": [{"role": "user", "content": prompt}]}
        judge = self.options.judge_model_server
        assert judge is not None  # as the options were checked
        response = await self.ask(judge.name, params)
        said = answers.judge_text(response)
        verdict = asked.label_in(said) or ""
        return gymq.Verdict(
            float(verdict == "yes"),
            extracted_final_answer=verdict,
            reasoning=said,
            judge_response_create_params=params,
            judge_response=response,
            **members,
        )
