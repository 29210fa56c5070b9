"""Subjects are built from checked names only, and `subjects.md` shows all of them."""

import inspect
import re
import shlex
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq import messages, streams, subjects
from gymq.messages import Message, decoder
from gymq.subjects import SUBJECTS, BadToken

PAGE = (Path(__file__).parents[2] / "subjects.md").read_text()

BUILDERS = [
    function
    for name, function in vars(subjects).items()
    if inspect.isfunction(function) and function.__module__ == subjects.__name__
    if name not in ("token", "is_token", "answered_by", "reply", "rollout_of")
]
HOSTILE = [
    "",
    ".",
    "a.b",
    "*",
    ">",
    "a b",
    "a\tb",
    "x\n",
    "x\r\nPUB gym.tasks 0\r\n\r\n",
    "a" * 65,
    "\u00e4",
    "a\x00",
    "$SRV",
]

builder = pytest.mark.parametrize("build", BUILDERS, ids=lambda function: function.__name__)


def arguments_of(build: Callable[..., str]) -> dict[str, Any]:
    """Good arguments."""
    types = inspect.signature(build).parameters
    return {name: "x" if parameter.annotation == "str" else 7 for name, parameter in types.items()}


@builder
@pytest.mark.parametrize("hostile", [*HOSTILE, None, 7, b"x", ["x"]])
def test_a_hostile_name_never_enters_a_subject(build: Callable[..., str], hostile: Any) -> None:
    good = arguments_of(build)
    for name, value in good.items():
        if value == "x":
            with pytest.raises(BadToken):
                build(**good | {name: hostile})


@builder
@pytest.mark.parametrize("hostile", ["1.2", "*", "7", 1.5, [1]])
def test_what_is_no_number_never_enters_a_subject(build: Callable[..., str], hostile: Any) -> None:
    good = arguments_of(build)
    for name, value in good.items():
        if value == 7:
            with pytest.raises((ValueError, TypeError)):
                build(**good | {name: hostile})


@given(st.text(max_size=70))
def test_a_token_is_returned_as_it_is_or_refused(text: str) -> None:
    good = 1 <= len(text) <= 64 and all(c.isascii() and (c.isalnum() or c in "_-") for c in text)
    if good:
        assert subjects.token(text) == text
    else:
        with pytest.raises(BadToken):
            subjects.token(text)


@pytest.mark.parametrize(
    ("subject", "role"),
    [
        ("gym.model.policy", "model"),
        ("gym.model.policy.worker", "model"),
        ("gym.judge.judge", "model"),
        ("gym.seed.env", "resources"),
        ("gym.resources.env", "resources"),
        ("gym.session.worker.session", "resources"),
        ("gym.ping.agent.worker", "agent"),
        ("gym.rollouts.run.0.0", subjects.SERVER),
        ("$JS.API.INFO", subjects.SERVER),
        ("$SRV.PING", subjects.ANYBODY),
    ],
)
def test_each_request_is_answered_by_one_role(subject: str, role: str) -> None:
    assert subjects.answered_by(subject) == role


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        ("gym.rollouts.run.0.1", ("run", 0, 1)),
        (f"gym.rollouts.run.{2**53}.0", ("run", 2**53, 0)),
        (f"gym.rollouts.run.{2**53 + 1}.0", None),
        ("gym.rollouts.run.99999999999999999999.0", None),
        ("gym.rollouts.run.0", None),
        ("gym.rollouts.run.0.1.2", None),
        ("gym.rollouts.run.\u0663.0", None),
        ("gym.rollouts.r$n.0.0", None),
        (f"gym.rollouts.{'r' * 65}.0.0", None),
        ("gym.rollouts.run.0.-1", None),
    ],
)
def test_the_subject_of_a_rollout_is_read_back(subject: str, found: tuple[str, int, int] | None) -> None:
    assert subjects.rollout_of(subject) == found


def test_a_refusal_says_what_would_be_right() -> None:
    with pytest.raises(BadToken, match=r"run 'a\.b' must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -"):
        subjects.tasks("a.b", "agent")


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject, or the filter of a subscription, is one of those that a row of the table is about."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if tokens[-1] == ">":
        tokens[-1:] = ["*"] * (len(wanted) - len(tokens) + 1)
    return len(wanted) == len(tokens) and all(
        token in (want, "*") or want.startswith("<") for want, token in zip(wanted, tokens, strict=True)
    )


@builder
def test_every_subject_that_is_built_stands_in_the_table(build: Callable[..., str]) -> None:
    built = build(**arguments_of(build))
    if build in (subjects.task_parts, subjects.rollout_parts, subjects.call_parts, subjects.weights_parts):
        built = f"{built}.0"
    assert len([row for row in SUBJECTS if matches(row.pattern, built)]) == 1


def test_the_streams_of_the_table_are_those_that_exist() -> None:
    assert {row.stream for row in SUBJECTS} - {"-"} == set(streams.stream_configs())


def columns(line: str) -> list[str]:
    return [unescape(cell.strip()) for cell in line.strip().strip("|").split(" | ")]


def table() -> list[dict[str, str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return [dict(zip(columns(lines[0]), columns(line), strict=True)) for line in lines[2:]]


def test_the_page_shows_exactly_the_subjects_of_the_code() -> None:
    shown = [(row["subject"].strip("`"), row["messages"], row["stream"], row["group"]) for row in table()]
    assert shown == [(row.pattern, row.messages, row.stream, row.group) for row in SUBJECTS]


def test_the_page_says_of_every_subject_who_uses_it_and_what_is_guaranteed() -> None:
    for row in table():
        assert all(row[column] for column in ("published by", "received by", "guarantee")), row


def test_every_message_of_the_table_exists() -> None:
    named = {word for row in SUBJECTS if "JSON" not in row.messages for word in re.findall(r"[A-Z]\w+", row.messages)}
    assert all(issubclass(getattr(messages, name), Message) for name in named)


def commands() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.startswith("gym ")]


def test_every_example_of_the_page_is_the_message_that_its_subject_takes() -> None:
    published = [words for words in commands() if words[1] in ("pub", "request")]
    assert len(published) >= 6
    for _, _, subject, body in published:
        row = next(row for row in SUBJECTS if matches(row.pattern, subject))
        requests = [exchange.split(" → ")[0] for exchange in row.messages.split(", ")]
        decoder(*(getattr(messages, name) for name in requests))(body.encode())
