"""Stored runs as a folder that a browser shows without a server: to keep it, or to send it to somebody."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import msgspec

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.ext.rollout_files.shown import exact_record
from gymq.ext.viewer.highlighting import LANGUAGE_OF_FIELD, TRACEBACK, TRACEBACK_LANGUAGE
from gymq.ext.viewer.rendering import MOST_TEXTS, Rendering, RichText
from gymq.ext.viewer.rollout_view import View, stored_view, tokens_of_item
from gymq.ext.viewer.run_configuration import configuration_view
from gymq.ext.viewer.run_index import RunIndexes
from gymq.ext.viewer.run_list import RunList, RunRow
from gymq.ext.viewer.run_views import RunViews
from gymq.ext.viewer.site import PAGE, STORED, Site
from gymq.ext.viewer.token_texts import TokenTexts
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import Outcome
from gymq.protocol.tokens import to_json
from gymq.runs.stored_runs import Runs

ENTRY = "app.js"
_SERVED = "api.js"  # what the page asks where it is served; `STORED` asks files beside it

_IMPORT = re.compile(r'^import (\{[^}\n]*\}) from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:const|function|class)) (\w+)", re.MULTILINE)

# `frame-ancestors` has no effect in a page, and a page from a file has no origin that `connect-src` could allow.
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types gymq-data"
)

MOST_COMPARED = 6  # runs of which all pairs are compared
CLIPPED = 2000  # characters of a longer text that the head of a rollout shows at first, as in `rollout.js`

_FILES = ("style.css", "icon.svg")


class ViewerExport:
    """Writes runs of a bus into a folder."""

    def __init__(self, bus: Bus, folder: Path, tokenizer: Path | None = None, *, has_workers: bool = True) -> None:
        """Prepare an export.

        Args:
            folder: where to write; an existing file of the same name is replaced.
            tokenizer: file or folder with the tokenizer of the policy, with which tokens are shown as text.
            has_workers: False for a store without its cluster: nothing of it is in flight.
        """
        self._folder = folder
        self._token_texts = None if tokenizer is None else TokenTexts(tokenizer)
        self._list = RunList(bus, has_workers=has_workers)
        self._records = Runs(bus)
        self._views = RunViews(bus, has_workers=has_workers)
        self._indexes = RunIndexes(bus)
        self._store = OutcomeStore(bus)
        self._rendering = Rendering()

    async def write(self, runs: Sequence[str] | None = None) -> tuple[int, int]:
        """Write the page, and all it can show of some runs.

        Args:
            runs: their names; None: all that are stored.

        Returns:
            How many runs and how many rollouts were written.

        Raises:
            BusError, OSError
        """
        site = Site()
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        (self._folder / "index.html").write_text(page(site))
        (self._folder / "viewer.js").write_text(script(site))
        for name in _FILES:
            (self._folder / name).write_text(site.text(name))
        listed = [row async for row in self._list.all() if runs is None or row.overview.run in runs]
        self._put("runs", {"runs": listed})
        try:
            num_rollouts = sum([await self._run(number, row) for number, row in enumerate(listed)])
        finally:
            self._rendering.close()
        if len(listed) <= MOST_COMPARED:
            await self._compare([row.overview.run for row in listed])
        return len(listed), num_rollouts

    async def _run(self, number: int, row: RunRow) -> int:
        run = row.overview.run
        record = await self._records.record(run)
        configuration = configuration_view(b"" if record is None else record.configuration)
        rows, tasks = await self._indexes.everything(run)
        parts = {
            "view": await self._views.view(run),
            "rows": rows,
            "tasks": tasks,
            "charts": await self._indexes.charts(run),
            "failing": await self._indexes.failure_groups(run),
            "configuration": configuration,
            "rendered": await self._trees([("yaml", configuration.options), ("yaml", configuration.workers)]),
        }
        self._put(f"run-{number}", parts)
        async for _, outcome in self._store.read(run):
            view = stored_view(outcome)
            stored = {
                "view": view,
                "tokens": dict(self._tokens(outcome, view)),
                "record": exact_record(outcome).decode(),
                "rendered": await self._rendered(view),
            }
            self._put(f"rollout-{number}-{outcome.task_index}-{outcome.rollout_index}", stored)
        return len(rows)

    async def _rendered(self, view: View) -> list[tuple[str, str, Any]]:
        """Return the trees of the texts that the page may ask for of a rollout."""
        return await self._trees(list(dict.fromkeys(_sources(view))))

    async def _trees(self, sources: Sequence[tuple[str, str]]) -> list[tuple[str, str, Any]]:
        """Return languages, texts and their trees; what is missing is shown as it is."""
        trees: list[Any] = []
        for start in range(0, len(sources), MOST_TEXTS):
            texts = [RichText(text, language) for language, text in sources[start : start + MOST_TEXTS]]
            trees += await self._rendering.render(texts)
        return [(*source, tree) for source, tree in zip(sources, trees, strict=True) if tree is not None]

    async def _compare(self, runs: Sequence[str]) -> None:
        for left, name in enumerate(runs):
            for right, other in enumerate(runs):
                if left == right:
                    continue
                while not (found := await self._indexes.comparison(name, [other], "task", 0, 1_000_000)).is_whole:
                    pass  # it reads on
                self._put(f"compared-{left}-{right}", found)

    def _tokens(self, outcome: Outcome, view: View) -> Iterator[tuple[str, View]]:
        for position, item in enumerate(view.get("items", [])):
            if "generation_token_ids" in item.get("tokens", {}):
                found = tokens_of_item(outcome, position)
                if self._token_texts is not None:
                    found["texts"] = self._token_texts.texts(found["ids"])
                yield str(position), found

    def _put(self, name: str, value: Any) -> None:
        # As a text of JSON: an object of JavaScript would take a field `__proto__` for its prototype.
        text = to_json(to_json(value).decode())
        (self._folder / "data" / f"{name}.js").write_bytes(b'gymqStored("' + name.encode() + b'", ' + text + b");\n")


def _sources(view: View) -> Iterator[tuple[str, str]]:
    """Yield language (empty: Markdown) and text of what the page renders of a rollout."""
    for name in ("instructions", "input", "expected", "answer", "verdict", "judge_calls"):
        yield from _texts(view.get(name), "")
    yield from _texts(view.get("failure"), "")
    for item in view.get("items", []):
        if item.get("type") == "reasoning":
            parts = [*(item.get("summary") or []), *(item.get("content") or [])]
            yield "", "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
        yield from _texts(item, "")


def _texts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _texts(entry, str(key))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _texts(entry, name)
    elif isinstance(value, str):
        yield from _of_text(value, name)


def _of_text(text: str, name: str) -> Iterator[tuple[str, str]]:
    language = LANGUAGE_OF_FIELD.get(name.lower())
    if language is not None:
        yield language, text
    if TRACEBACK in text:
        yield TRACEBACK_LANGUAGE, text
    if name in ("arguments", "output"):
        yield from _inside(text)
    if len(text) > 2 * CLIPPED:
        yield "", text[:CLIPPED]
    yield "", text


def _inside(text: str) -> Iterable[tuple[str, str]]:
    """Return the texts in the JSON that a call's arguments or its result may be."""
    try:
        decoded = msgspec.json.decode(text)
    except UNDECODABLE:
        return [("json", text)]
    return _texts(decoded, "") if isinstance(decoded, dict | list) else []


def script(site: Site) -> str:
    """Return all modules of the page in one script, with those that others import before them."""
    modules: dict[str, str] = {}
    uses: dict[str, set[str]] = {}
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name in modules:
            continue
        modules[name] = site.text(STORED if name == _SERVED else name)
        uses[name] = {match[2] for match in _IMPORT.finditer(modules[name])}
        waiting += uses[name]
    parts = [_function(name, modules[name]) for name in TopologicalSorter(uses).static_order()]
    return "".join(['"use strict";\n(() => {\nconst modules = {};\n', *parts, "})();\n"])


def page(site: Site) -> str:
    """Return the page that loads the script."""
    html = site.text(PAGE).replace('<script type="module" src="app.js">', '<script src="viewer.js" defer>')
    return html.replace("<title>", f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<title>', 1)


def _function(name: str, source: str) -> str:
    """Return a module as a function that is called at once and whose result is what the module exports."""
    names = [match[2] for match in _EXPORT.finditer(source)]
    body = _EXPORT.sub(lambda match: f"{match[1]} {match[2]}", _IMPORT.sub(_taken, source))
    return f"modules[{name!r}] = (() => {{\n{body}return {{ {', '.join(names)} }};\n}})();\n"


def _taken(match: re.Match[str]) -> str:
    names = match[1].replace(" as ", ": ")
    return f"const {names} = modules[{match[2]!r}];\n"
