"""Tokens as text: what ids stand for, with characters of several tokens whole."""

import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from gymq.errors import UsageError
from gymq.ext.viewer.token_texts import TokenTexts
from gymq.ext.viewer.viewer import Viewer
from gymq.testing import reply
from tests.support.browser import browser, needs_browser

from .conftest import Web, rollout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer whose tokens are words and bytes."""
    bytes_of = {f"<0x{number:02X}>": number for number in range(256)}
    vocabulary = bytes_of | {"\u2581Hello": 256, "\u2581world": 257, "!": 258}
    model = {
        "type": "BPE",
        "vocab": vocabulary,
        "merges": [],
        "byte_fallback": True,
        "fuse_unk": True,
        "unk_token": None,
    }
    steps = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    described = {
        "version": "1.0",
        "added_tokens": [],
        "model": model,
        "decoder": {"type": "Sequence", "decoders": steps},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    return tmp_path


def test_each_id_has_its_text_and_a_character_of_several_ids_comes_with_the_last(folder: Path) -> None:
    texts = TokenTexts(folder)
    assert texts.texts([256, 257, 258]) == [" Hello", " world", "!"]
    assert texts.texts([258, *"\u00fc".encode(), 258]) == ["!", "", "\u00fc", "!"]
    assert TokenTexts(folder / "tokenizer.json").texts([258, 10**9, 258])[0] == "!"


@pytest.mark.parametrize(("content", "message"), [("", "is not a tokenizer"), (None, "there is no such file")])
def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UsageError, match=message):
        TokenTexts(tmp_path)


@needs_browser
async def test_the_page_shows_tokens_as_text_with_ids_and_policy_version(web: Web, run: str, folder: Path) -> None:
    response = reply("Hello world!")
    tokens = {"prompt_token_ids": array("i", [1]), "generation_token_ids": array("i", [256, 257, 258])}
    response["output"][0] |= tokens | {"generation_log_probs": array("f", [-0.01, -1.0, -3.0])}
    await web.store(rollout(run, 0, response=response, policy_versions=["step-7"]))
    async with Viewer(web.world.bus, "127.0.0.1", tokenizer=folder) as viewer, browser() as page:
        await page.open(f"{viewer.url}#/rollout/{run}/0/0")
        await page.shows("3 generated")
        await page.value("document.querySelector('.tokens button').click()")
        await page.until("document.querySelector('.ids') !== null")
        assert await page.value("document.querySelector('.ids').textContent") == " Hello world!"
        assert (await page.value("document.querySelector('.ids .id.odd').title")).startswith("id 258, log prob -3")
        await page.shows("policy version step-7")
        assert page.problems == []


@needs_browser
async def test_the_page_shows_ids_and_which_weights_wrote_each_turn_and_token(web: Web, run: str) -> None:
    response = reply("Hello", "world")
    first, second = response["output"]
    first |= {"prompt_token_ids": array("i", [1]), "generation_token_ids": array("i", [40001, 40002])}
    first |= {"generation_log_probs": array("f", [-0.01, -3.0]), "generation_policy_versions": [["step-1", 2]]}
    second |= {"prompt_token_ids": array("i", [1, 40001, 40002]), "generation_token_ids": array("i", [4, 5, 6])}
    second |= {"generation_log_probs": array("f", [-1.0] * 3)}
    second["generation_policy_versions"] = [["step-1", 1], [None, 2]]
    await web.store(rollout(run, 0, response=response, policy_versions=["step-1", "step-2"]))
    async with browser() as page:
        await page.open(f"{web.url}#/rollout/{run}/0/0")
        await page.until("document.querySelectorAll('.turn .tokens button').length === 2")
        chips = "[...document.querySelectorAll('.turn .chip')].map(chip => chip.textContent).join('; ')"
        assert await page.value(chips) == "step-1; step-1 (1 of 3 tokens), unknown version (2 of 3 tokens)"
        await page.shows("1 tokens in the prompt, 2 generated")
        await page.value("document.querySelector('.tokens button').click()")
        await page.shows("40001 40002")
        classes = "[...document.querySelectorAll('.ids .id')].map((one) => one.className)"
        assert await page.value(classes) == ["id sure", "id odd"]
        await page.value("document.querySelector('.tokens button').click()")
        await page.until("document.querySelectorAll('.ids').length === 2")
        assert await page.value("document.querySelector('.new-weights').title.split(', ').pop()") == "unknown version"
        assert await page.value("document.querySelectorAll('.new-weights').length") == 1
        assert page.problems == []


@needs_browser
@pytest.mark.nightly
async def test_the_page_names_no_weights_in_turns_that_one_version_wrote(web: Web, run: str) -> None:
    response = reply("Hello")
    tokens: dict[str, Any] = {"prompt_token_ids": array("i", [1]), "generation_token_ids": array("i", [2])}
    tokens |= {"generation_log_probs": array("f", [-1.0])}
    response["output"][0] |= tokens | {"generation_policy_versions": [["step-1", 1]]}
    await web.store(rollout(run, 0, response=response, policy_versions=["step-1"]))
    async with browser() as page:
        await page.open(f"{web.url}#/rollout/{run}/0/0")
        await page.until("document.querySelectorAll('.turn .tokens button').length === 1")
        assert await page.value("document.querySelectorAll('.turn .chip').length") == 0
