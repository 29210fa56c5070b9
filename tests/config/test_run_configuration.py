"""The configuration that is stored with a run: readable, bounded, and without a secret wherever one may stand."""

from typing import Any

import msgspec
import pytest

from gymq.config import Instance, record_instances, record_options
from gymq.data.run_configuration import MAX_BYTES, RunConfiguration, encode_configuration, read_configuration
from gymq.redaction import hide_options

KEY = "sk-proj-Zq81mVt3Xw0aLr5yBn7D"
PLAIN = "correct horse battery"  # a secret that looks like nothing in particular
WORD = "tangerine42"


def stored(options: dict[str, Any], run: dict[str, Any] | None = None) -> RunConfiguration:
    """What is kept of the options of a worker and of a run."""
    workers = record_instances([Instance("policy", "models", "openai_model", {"entrypoint": "worker.py", **options})])
    found = read_configuration(encode_configuration(record_options(run or {}), workers))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"openai_api_key": PLAIN},
        {"tavily_api_key": [PLAIN, PLAIN]},
        {"api_keys": {WORD: {"of": PLAIN}}},
        {"hf_token": PLAIN, "session_secret": PLAIN, "db_password": PLAIN, "auth": PLAIN},
        {"openai_default_headers": {"X-Team": PLAIN, "Authorization": f"Bearer {PLAIN}"}},
        {"servers": {"github": {"url": "https://host/mcp", "headers": {"X-Team": PLAIN}}}},
        {"servers": {"github": {"command": ["server"], "env": {"ANYTHING": WORD, "DEBUG": WORD}}}},
        {"servers": [{"environment": [f"ANYTHING={WORD}"]}]},
        {"servers": {"github": {"command": ["server", "--api-key", WORD, "--access-token", WORD]}}},
        {"command": ["server", f"--api-key={WORD}", f"--token={WORD}"]},
        {"command": f"API_KEY={WORD} python agent.py --password {WORD} --auth '{WORD}'"},
        {"command": f"curl -H 'Authorization: Bearer {WORD}' -H \"X-Api-Key: {WORD}\" https://host"},
        {"openai_base_url": f"https://me:{WORD}@host/v1"},
        {"openai_base_url": [f"https://host/v1?model=a&api_key={WORD}&x=1"]},
        {"extra_body": {"nested": [{"deep": {"api_key": WORD}}]}},
        {"extra_body": {"metadata": f'{{"api_key": "{WORD}"}}'}},
        {"note": f"ask with {KEY}, please", "list": [[KEY]], KEY: 1, "mapping": {KEY: {"a": 1}}},
        {"note": "ghp_0123456789abcdefABCDEF0123456789abcd, hf_abcdefghijklmnopqrstuvwxyz, AKIAIOSFODNN7EXAMPLE"},
        {"openai_api_key": "Zq81mVt3Xw0aLr5yBn7D", "note": "the same again: Zq81mVt3Xw0aLr5yBn7D"},
    ],
)
@pytest.mark.parametrize("place", ["worker", "run"])
def test_no_secret_is_stored_wherever_it_stands(options: dict[str, Any], place: str) -> None:
    hide_options(options)  # as the collection does before
    found = stored(options) if place == "worker" else stored({}, {"responses_create_params": options})
    text = msgspec.json.encode(found).decode()
    for secret in (KEY, PLAIN, WORD, "Zq81mVt3Xw0aLr5yBn7D", "ghp_0123", "hf_abcd", "AKIAIOSF"):
        assert secret not in text


def test_the_secrets_of_the_environment_are_in_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_ACCESS_KEY", "plums-and-pears")
    monkeypatch.setenv("TEAM_SHORT_KEY", "eu")
    found = stored({"note": "uses plums-and-pears in eu"}, {"input": "rows.jsonl"})
    assert found.workers["policy"].options == {"note": "uses **** in eu"}
    assert found.options == {"input": "rows.jsonl"}


def test_what_is_no_secret_stays_as_it_is() -> None:
    options = {
        "openai_base_url": "http://host:8000/v1?a=b",
        "openai_model": "meta-llama/Llama-3.1-8B-Instruct",
        "max_output_tokens": 4096,
        "input": "data/team@2024/rows.jsonl",
        "prompt": {"user": "Name the key: {question}\nAnswer: with a @word", "system": None},
        "stop": ["</s>", "--", 1.5, True, None],
        "judge": {"type": "responses_api_models", "name": "judge"},
    }
    expected = {
        **{name: value for name, value in options.items() if name not in ("prompt", "judge")},
        "prompt.user": "Name the key: {question}\nAnswer: with a @word",
        "prompt.system": None,
        "judge.type": "responses_api_models",
        "judge.name": "judge",
    }
    found = stored(options, options)
    assert found.workers["policy"].options == expected
    assert found.options == expected
    assert (found.workers["policy"].implementation, found.is_cut) == ("openai_model", False)


@pytest.mark.parametrize(
    "options", [{"a": "x" * 10**6}, {f"a{number}": "x" * 500 for number in range(2000)}, {"l": ["x" * 300] * 10**4}]
)
def test_a_large_configuration_is_cut_and_says_so(options: dict[str, Any]) -> None:
    workers = record_instances([Instance(name, "models", "m", options) for name in ("a", "b")])
    kept = encode_configuration(record_options({"prompt": "y" * 30_000}), workers)
    assert len(kept) <= MAX_BYTES
    found = read_configuration(kept)
    assert found is not None
    assert found.is_cut
    assert list(found.workers) == ["a", "b"]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"workers": {"a": 1}}', b"\xff", b"[" * 50_000, b" " * 70_000])
def test_what_cannot_be_read_is_no_configuration(text: bytes) -> None:
    assert read_configuration(text) is None
