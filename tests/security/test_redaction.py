"""Credentials of a worker's options are cut out of what it answers and what it shows; other texts stay as they are."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import Generated
from gymq.redaction import hidden, hide_options, names_secret, redact, without_credentials

KEY = "sk-proj-0123456789abcdef"
decode = Decoder(Generated)


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": KEY},
        {"apiKey": KEY},
        {"clientSecret": [KEY]},
        {"passwd": KEY},
        {"basic_auth": KEY},
        {"slack_webhook_url": KEY},
        {"judge": {"openai_default_headers": {"X-Anything": KEY}}},
        {"headers": {"Authorization": f"Bearer {KEY}"}},
        {"api_keys": {"one": {"of": KEY}}},
    ],
)
def test_a_key_in_the_options_is_in_no_text_and_no_reply(options: dict[str, Any]) -> None:
    hide_options(options)
    assert redact(f"refused {KEY}, go") == "refused ***, go"
    response = {"output": [{"text": f"you sent {KEY}!", KEY: [f"{KEY}{KEY}", 1, None, b"x"]}]}
    sent = decode(without_credentials(encode(Generated(response=response, worker="w"))))
    assert sent.response == {"output": [{"text": "you sent ***!", "***": ["******", 1, None, b"x"]}]}


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": "EMPTY"},
        {"api_key": "token-abc123"},
        {"api_key": "no-key-is-needed-here"},
        {"default_headers": {"Content-Type": "application/json"}},
        {"model": "Qwen2.5-Math-7B-Instruct", "tokenizer": "Qwen2.5-Math-7B-Instruct"},
    ],
)
def test_what_a_model_may_say_by_chance_stays_in_its_replies(options: dict[str, Any]) -> None:
    hide_options(options)
    texts = list(_texts(options))
    body = encode(Generated(response={"output": texts}))
    assert without_credentials(body) == body


def test_a_secret_that_begins_like_a_shorter_one_leaves_no_end() -> None:
    secrets = [f"{KEY}-of-the-judge{'-more' * number}" for number in range(8)]
    hide_options({"api_keys": secrets})
    body = encode(Generated(response={"output": secrets}))
    for secret in secrets:
        assert redact(f"refused {secret}") == "refused ***"
    assert decode(without_credentials(body)).response == {"output": ["***"] * len(secrets)}


def test_a_thread_redacts_while_others_hide_secrets() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor() as threads:
            hiding = threads.submit(_hide_for_a_while, 20_000)
            while not hiding.done():
                redact("what a worker says")
    finally:
        sys.setswitchinterval(interval)


def _hide_for_a_while(number: int) -> None:
    for one in range(number):
        with hidden(f"key-of-rollout-{one}"):
            pass


@pytest.mark.parametrize(
    ("name", "is_secret"), [("pwd", True), ("DB_PWD", True), ("ftpPwd", True), ("PWD", False), ("OLDPWD", False)]
)
def test_the_working_directory_is_no_secret(name: str, is_secret: bool) -> None:
    assert names_secret(name) is is_secret


def test_a_reply_without_a_key_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_options({"api_key": KEY})
    monkeypatch.setattr(msgspec.msgpack, "decode", None)
    body = encode(Generated(response={"output": "x" * 100_000}))
    assert without_credentials(body) is body


def test_a_key_deep_in_a_reply_is_found() -> None:
    hide_options({"api_key": KEY})
    value: Any = KEY
    for _ in range(400):
        value = {"a": [value]}
    assert KEY.encode() not in without_credentials(encode(Generated(response=value)))


def test_a_key_in_a_long_reply_is_found() -> None:
    hide_options({"api_key": KEY})
    sent = decode(without_credentials(encode(Generated(response={"output": [KEY, "x" * 100_000]}))))
    assert sent.response["output"][0] == "***"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    else:
        yield value
