"""A run as a folder: read in a browser from a file, without a server."""

import json
import re
from array import array
from importlib.resources import files
from pathlib import Path

import pytest

from gymq.ext.viewer import run_index
from gymq.ext.viewer.export import MOST_COMPARED, ViewerExport, script
from gymq.ext.viewer.export import page as page_of
from gymq.ext.viewer.highlighting import LANGUAGE_OF_FIELD
from gymq.ext.viewer.site import Site
from gymq.testing import function_call, reply
from tests.support.browser import Page, needs_browser

from .conftest import Web, failure, rollout
from .test_browser import HOSTILE_MARKDOWN, MARKDOWN, hostile


async def export(web: Web, run: str, folder: Path) -> str:
    """Export two runs, and return the URL of the page."""
    tokens = {"prompt_token_ids": array("i", [1]), "generation_token_ids": array("i", [7])}
    response = reply(function_call("run", {"code": "x = 1\n" * 20}), MARKDOWN)
    response["output"][-1] |= tokens | {"generation_log_probs": array("f", [-0.01])}
    for name, reward in ((run, 0.0), (f"{run}x", 1.0)):
        await web.announce(name, num_rollouts=3)
        await web.store(
            rollout(name, 0, reward=reward, response=response),
            rollout(name, 1, reward=1.0, text="\n\n".join(HOSTILE_MARKDOWN) + hostile(1)),
            failure(name, 2, message=hostile(2)),
        )
    await web.profile()
    assert await ViewerExport(web.world.bus, folder).write([run, f"{run}x"]) == (2, 6)
    return (folder / "index.html").as_uri()


@needs_browser
async def test_an_export_is_read_from_a_file(web: Web, run: str, page: Page, tmp_path: Path) -> None:
    await page.open(await export(web, run, tmp_path / "out"))
    await page.shows(f"{run}x")
    await page.follow(f"#/run/{run}?tab=rollouts")
    await page.until("document.querySelectorAll('.rollouts tbody tr').length === 3")
    await page.follow(f"#/run/{run}?tab=rollouts&result=failed")
    await page.until("document.querySelectorAll('.rollouts tbody tr').length === 1")
    for tab in ("tasks", "failures", "charts", "configuration"):
        await page.follow(f"#/run/{run}?tab={tab}")
        await page.until("document.querySelector('.tabbed h2, .tabbed table') !== null")
    await page.follow(f"#/rollout/{run}/0/0")
    for part in ("strong", "pre.code .keyword", "table td", "math msup"):
        await page.until(f"document.querySelector('.turn .rich {part}, .turn {part}') !== null")
    await page.value("document.querySelector('.tokens button').click()")
    await page.until("document.querySelector('.ids .id').title.includes('id 7')")
    await page.unfold()
    await page.until("document.querySelector('.json-text .rich.code .figure') !== null")
    await page.press("]")
    await page.shows("task 1, rollout 0")
    await page.follow(f"#/compare/{run}/{run}x")
    await page.shows("better in 1, worse in 0, equal in 1 of 2 tasks; 1 more without a reward")
    assert page.problems == []


@needs_browser
async def test_hostile_texts_stay_texts_in_an_export(web: Web, run: str, page: Page, tmp_path: Path) -> None:
    await page.open(await export(web, run, tmp_path / "out"))
    for task, number in ((1, 1), (2, 2)):
        await page.follow(f"#/rollout/{run}/{task}/0")
        await page.until(f"document.body.textContent.includes('window.hit={number}<')")
        await page.whole(1280)
        assert await page.value("window.hit") is None
        assert await page.value("document.querySelectorAll('main img, iframe, object, embed').length") == 0
    tried = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'parsed' } catch (e) { return e.name } })()"
    assert await page.value(tried) == "TypeError"


async def test_a_field_named_like_the_prototype_is_data(web: Web, run: str, tmp_path: Path) -> None:
    await web.announce(run, num_rollouts=1)
    await web.store(rollout(run, 0, verdict={"__proto__": {"reward": 9}}))
    await ViewerExport(web.world.bus, tmp_path).write([run])
    name, text = re.fullmatch(
        r'gymqStored\("([a-z0-9-]+)", (".*")\);\n', (tmp_path / "data" / "rollout-0-0-0.js").read_text(), re.DOTALL
    ).groups()  # type: ignore[union-attr]
    assert name == "rollout-0-0-0"
    assert json.loads(json.loads(text))["view"]["verdict"] == {"__proto__": {"reward": 9}}


async def test_all_of_more_runs_than_are_kept_is_compared(
    web: Web, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_index, "READ_S", 0.0)
    runs = [f"{run}{number}" for number in range(MOST_COMPARED)]
    for name in runs:
        await web.announce(name, num_rollouts=3)
        await web.store(*(rollout(name, task) for task in range(3)))
    await ViewerExport(web.world.bus, tmp_path).write(runs)
    for file in (tmp_path / "data").glob("compared-*.js"):
        found = json.loads(json.loads(re.search(r'", (".*")\);', file.read_text())[1]))  # type: ignore[index]
        assert (found["num_tasks"], found["is_whole"]) == (3, True)


def test_the_script_has_every_module_once_and_asks_no_bridge() -> None:
    source = script(Site())
    names = re.findall(r"^modules\['(\w+\.js)'\] = ", source, re.MULTILINE)
    folder = files("gymq.ext.viewer") / "static"
    assert sorted(names) == sorted(
        file.name for file in folder.iterdir() if file.name.endswith(".js") and file.name != "stored.js"
    )
    assert not re.search(r"^(import|export) ", source, re.MULTILINE)
    assert "fetch(" not in source
    assert "http-equiv" in page_of(Site())


def test_code_is_coloured_by_the_same_fields_as_on_the_page() -> None:
    source = (files("gymq.ext.viewer") / "static" / "json.js").read_text()
    table = source[source.index("const LANGUAGES") : source.index("};")]
    assert dict(re.findall(r'(\w+): "(\w+)"', table)) == LANGUAGE_OF_FIELD
