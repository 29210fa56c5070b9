"""A repeated evaluation gets its earlier answers without asking the endpoint."""

from __future__ import annotations

import asyncio
import logging
from array import array
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.openai_model import response_cache
from gymq.workers.models.openai_model.response_cache import MARK, ResponseCache
from gymq.workers.models.openai_model.tests.conftest import Start
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json, error
from gymq.workers.models.openai_model.tests.replies import response
from gymq.workers.models.openai_model.worker import OpenAIModel

import gymq
from gymq.protocol.packing import pack


@pytest.fixture(autouse=True)
def _numbered(server: MockServer) -> None:
    """Every answer is another one."""

    async def reply(_asked: Asked) -> Answer:
        return as_json(response(f"answer {len(server.asked)}"))

    server.reply = reply


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def said(worker: OpenAIModel, rollout: str = "first/0/0", attempt: int = 1, **params: Any) -> str:
    params = {"input": [{"role": "user", "content": "Hi"}], **params}
    reply = await worker.respond(gymq.ModelRequest(params, f"{rollout}/{attempt}", rollout, 30.0))
    return str(reply["output"][0]["content"][0]["text"])


async def test_another_run_gets_the_same_answer_without_a_request(
    start: Start, server: MockServer, tmp_path: Path
) -> None:
    first, second = await start(cache=str(tmp_path)), await start(cache=str(tmp_path))
    assert await said(first, "first/3/1") == await said(second, "second/3/1") == "answer 1"
    assert len(server.asked) == 1


async def test_without_the_option_nothing_is_kept(
    start: Start, server: MockServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    worker = await start()
    assert await said(worker) != await said(worker, "second/0/0")
    assert not files(tmp_path)


async def test_true_keeps_answers_in_the_current_folder(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await said(await start(cache=True))
    assert files(tmp_path / ".gymq" / "responses")


async def test_the_samples_of_a_row_stay_different_and_keep_their_places(
    start: Start, server: MockServer, tmp_path: Path
) -> None:
    worker = await start(cache=str(tmp_path))
    once = [await said(worker, f"first/0/{sample}") for sample in range(16)]
    again = [await said(worker, f"second/0/{sample}") for sample in range(16)]
    assert once == again
    assert len(set(once)) == 16


@pytest.mark.parametrize(
    ("options", "params", "rollout"),
    [
        ({"openai_model": "other"}, {}, "second/0/0"),
        ({"extra_body": {"seed": 1}}, {}, "second/0/0"),
        ({}, {"temperature": 0.5}, "second/0/0"),
        ({}, {}, "second/1/0"),
    ],
)
async def test_whatever_changes_the_answer_is_asked_for_again(
    start: Start, server: MockServer, tmp_path: Path, options: dict[str, Any], params: dict[str, Any], rollout: str
) -> None:
    await said(await start(cache=str(tmp_path)))
    assert await said(await start(cache=str(tmp_path), **options), rollout, **params) == "answer 2"


@pytest.mark.parametrize(
    "options", [{"openai_api_key": "another-key"}, {"max_concurrent_requests": 3}, {"num_workers": 2}]
)
async def test_what_does_not_change_the_answer_does_not_matter(
    start: Start, tmp_path: Path, options: dict[str, Any]
) -> None:
    await said(await start(cache=str(tmp_path)))
    assert await said(await start(cache=str(tmp_path), **options), "second/0/0") == "answer 1"


async def test_new_weights_answer_again(start: Start, tmp_path: Path) -> None:
    worker = await start(cache=str(tmp_path))
    await said(worker)
    worker.policy_version = "step-2"
    assert await said(worker, "second/0/0") == "answer 2"


async def test_a_session_that_asks_twice_gets_two_answers_and_so_does_the_next_run(
    start: Start, server: MockServer, tmp_path: Path
) -> None:
    worker = await start(cache=str(tmp_path))
    votes = [await said(worker) for _ in range(3)]
    assert votes == ["answer 1", "answer 2", "answer 3"]
    assert [await said(worker, "second/0/0") for _ in range(3)] == votes
    assert len(server.asked) == 3


async def test_a_session_that_asks_two_processes_gets_two_answers(start: Start, tmp_path: Path) -> None:
    one, other = await start(cache=str(tmp_path)), await start(cache=str(tmp_path))
    assert await said(one) != await said(other)


async def test_a_new_attempt_at_a_rollout_pays_for_nothing_twice(start: Start, tmp_path: Path) -> None:
    worker = await start(cache=str(tmp_path))
    assert await said(worker, attempt=1) == await said(worker, attempt=2)


async def test_a_failure_is_not_kept(start: Start, server: MockServer, tmp_path: Path) -> None:
    worker = await start(cache=str(tmp_path))
    good = server.reply

    async def refuse(_asked: Asked) -> Answer:
        return error("400 Bad Request", "no")

    server.reply = refuse
    with pytest.raises(gymq.RolloutError):
        await said(worker)
    server.reply = good
    assert await said(worker, "second/0/0") == "answer 3"  # the refusal was tried in both dialects


async def test_a_cached_answer_says_so_and_is_counted(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    worker = await start(cache=str(tmp_path))
    params = {"input": [{"role": "user", "content": "Hi"}]}
    fresh = await worker.respond(gymq.ModelRequest(params, "first/0/0/1", "first/0/0", 30.0))
    kept = await worker.respond(gymq.ModelRequest(params, "second/0/0/1", "second/0/0", 30.0))
    assert MARK not in fresh
    assert kept == {**fresh, MARK: True}
    await worker.stop()
    assert "1 calls answered from the cache, 1 asked" in caplog.text


async def cache(folder: Path, max_bytes: int = 10**9) -> ResponseCache:
    made = ResponseCache(folder, {}, max_bytes=max_bytes)
    await made.start()
    return made


def request(rollout: str = "first/0/0") -> gymq.ModelRequest:
    return gymq.ModelRequest({"input": "Hi"}, f"{rollout}/1", rollout, 30.0)


async def test_token_ids_and_log_probs_come_back_exactly(tmp_path: Path) -> None:
    item = {"prompt_token_ids": array("i", [1]), "generation_log_probs": [-0.1, -1e-30], "generation_token_ids": [5, 6]}

    async def ask(_request: gymq.ModelRequest) -> dict[str, Any]:
        return {"output": [item]}

    made = await cache(tmp_path)
    await made.answer(request(), ask)
    kept = await made.answer(request("second/0/0"), ask)
    assert kept["output"] == [{**item, "prompt_token_ids": [1]}]
    pack(kept)


async def _answer(_request: gymq.ModelRequest) -> dict[str, Any]:
    return {"output": []}


async def test_a_damaged_entry_is_asked_for_again_and_replaced(tmp_path: Path) -> None:
    made = await cache(tmp_path)
    await made.answer(request(), _answer)
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-3])
    assert MARK not in await made.answer(request("second/0/0"), _answer)
    assert MARK in await made.answer(request("third/0/0"), _answer)


async def test_a_full_folder_still_answers_and_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(response_cache, "_LOOK_EVERY", 1)
    made = await cache(tmp_path, max_bytes=1)
    await made.answer(request("first/0/0"), _answer)
    await made.answer(request("first/1/0"), _answer)
    assert len(files(tmp_path)) == 1
    assert MARK in await made.answer(request("second/0/0"), _answer)
    assert "nothing is added" in caplog.text


async def test_requests_at_the_same_time_are_told_apart(tmp_path: Path) -> None:
    numbers = iter(range(10))

    async def ask(_request: gymq.ModelRequest) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"number": next(numbers)}

    made = await cache(tmp_path)
    answers = await asyncio.gather(*(made.answer(request(), ask) for _ in range(3)))
    assert sorted(answer["number"] for answer in answers) == [0, 1, 2]
    again = await asyncio.gather(*(made.answer(request("second/0/0"), ask) for _ in range(3)))
    assert sorted(answer["number"] for answer in again) == [0, 1, 2]


async def test_a_folder_that_cannot_be_made_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(gymq.OptionsError, match="cache: "):
        await cache(tmp_path / "file" / "folder")
