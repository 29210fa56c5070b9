"""What is hidden from people, and what a fingerprint depends on."""

from typing import Any

import pytest

from gymq.config import fingerprint, masked, record_options


@pytest.mark.parametrize(
    "key",
    [
        "policy_api_key",
        "HF_TOKEN",
        "clientSecret",
        "db_password",
        "max_output_tokens",
        "Authorization",
        "passwd",
        "DB_PWD",
        "bearer",
        "basicAuth",
        "slack_webhook",
        "webhookUrl",
        "apikey",
        "apiKeyFile",
        "auth",
        "Set-Cookie",
        "pw",
        "db_pass",
        "passphrase",
        "private",
        "access",
    ],
)
def test_values_of_secret_keys_are_hidden(key):
    assert masked({"a": {key: "sek"}, "b": [{key: 5}]}) == {"a": {key: "****"}, "b": [{key: "****"}]}


def test_other_values_are_shown():
    tree = {"a": {"url": "http://host:80/v1?a=b", "n": 5, "none": None, "l": ["x@y.z", True]}}
    assert masked(tree) == tree


def test_lists_under_secret_keys_are_hidden():
    assert masked({"api_keys": ["a", ["b"], {"name": "c"}]}) == {"api_keys": ["****", ["****"], {"name": "****"}]}


def test_mappings_named_like_secrets_are_hidden():
    assert masked({"api_keys": {"openai": "a", "deep": {"b": "c"}}}) == {
        "api_keys": {"openai": "****", "deep": {"b": "****"}}
    }


def test_mappings_that_only_contain_such_a_word_are_shown():
    tree = {"monkey_island": {"resources_servers": {"token_counter": {"depth": 3}}}}
    assert masked(tree) == tree


@pytest.mark.parametrize("key", ["openai_default_headers", "headers", "defaultHeaders"])
def test_the_values_of_headers_are_hidden(key):
    assert masked({"a": {key: {"X-Team": "blue"}}}) == {"a": {key: {"X-Team": "****"}}}


@pytest.mark.parametrize("key", ["author", "authority", "cwd", "num_headings", "passes", "accessible", "privately"])
def test_words_that_only_begin_like_these_are_shown(key):
    assert masked({key: "a"}) == {key: "a"}


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/=\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdef123456", "Authorization: ****"),
        ("hf_abcdefghijklmnopqrst", "****"),
        (f"a {PEM} b", "a **** b"),
    ],
)
def test_texts_that_look_like_secrets_are_hidden_and_not_stored(text, shown):
    tree = {"note": text, "notes": [text]}
    assert masked(tree) == {"note": shown, "notes": [shown]}
    assert record_options(tree) == {"note": shown, "notes": [shown]}
    assert fingerprint(tree) == fingerprint({"note": shown, "notes": [shown]})


def test_a_number_that_is_a_secret_is_not_stored():
    assert record_options({"api_key": 271828, "max_tokens": 9, "retries": 3}) == {
        "api_key": "****",
        "max_tokens": 9,
        "retries": 3,
    }


def test_null_under_a_secret_key_is_shown():
    assert masked({"hf_token": None}) == {"hf_token": None}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pass@host/v1", "https://****@host/v1"),
        ("nats://token@host:4222", "nats://****@host:4222"),
        ("https://host/v1?model=a&api_key=sek&x=1", "https://host/v1?model=a&api_key=****&x=1"),
        ("one https://u:p@a/ two https://v:q@b/", "one https://****@a/ two https://****@b/"),
        ("https://host/users/@name", "https://host/users/@name"),
    ],
)
def test_credentials_in_urls_are_hidden(url, shown):
    assert masked({"base_url": url, "urls": [url]}) == {"base_url": shown, "urls": [shown]}


def test_masking_leaves_the_original_alone():
    tree = {"m": {"key": "a"}}
    masked(tree)
    assert tree == {"m": {"key": "a"}}


def test_a_fingerprint_does_not_depend_on_the_order_of_keys():
    assert fingerprint({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint({"b": {"d": 3, "c": 2}, "a": 1})


@pytest.mark.parametrize(
    "other",
    [
        {"a": 2, "l": [1, 2]},
        {"a": "1", "l": [1, 2]},
        {"a": 1.0, "l": [1, 2]},
        {"a": True, "l": [1, 2]},
        {"a": None, "l": [1, 2]},
        {"a": 1, "l": [2, 1]},
        {"a": 1},
        {"a": 1, "l": [1, 2], "b": None},
    ],
)
def test_a_fingerprint_depends_on_every_value(other):
    assert fingerprint({"a": 1, "l": [1, 2]}) != fingerprint(other)


def test_not_a_number_and_infinity_have_fingerprints_of_their_own():
    assert len({fingerprint({"x": float(text)}) for text in ("nan", "inf", "-inf")} | {fingerprint({"x": None})}) == 4


def test_a_fingerprint_does_not_depend_on_secrets():
    first = {"api_key": "a", "url": "http://u:p@host", "keys": {"x": "a"}}
    second = {"api_key": "b", "url": "http://u:q@host", "keys": {"x": "b"}}
    assert fingerprint(first) == fingerprint(second)


def test_a_fingerprint_depends_on_limits_counted_in_tokens():
    assert fingerprint({"max_output_tokens": 1}) != fingerprint({"max_output_tokens": 2})
    assert fingerprint({"tokenizer": "a"}) != fingerprint({"tokenizer": "b"})


def test_a_fingerprint_does_not_depend_on_where_files_lie():
    assert fingerprint({"config_paths": ["/here/a.yaml"]}) == fingerprint({"config_paths": ["/there/a.yaml"]})


def test_a_fingerprint_stays_the_same_from_release_to_release():
    tree: dict[Any, Any] = {
        "env": {"resources_servers": {"mcqa": {"entrypoint": "app.py", "rate": 0.5}}},
        1: [None, True],
        "key": "s",
    }
    assert fingerprint(tree) == "2996568dfc10842d4758ff97b1431ab0bccab492b4159ef8925140ae05596b79"
