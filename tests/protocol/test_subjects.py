"""Subjects are built from checked names only, and `subjects.md` shows all of them."""

import ast
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gymq
from gymq.bus import streams
from gymq.protocol import journal_messages, messages, replica_messages, subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import Message
from gymq.protocol.subjects import SUBJECTS, BadToken, RolloutId, Subject

PAGE = (Path(__file__).parents[2] / "subjects.md").read_text()

NUMBERS = {"<task>", "<rollout>", "<n>"}
LONG = "a" * 65
LONG_NAMES = ("agent", "resources", "model")  # of instances
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
    LONG,
    "\u00e4",
    "a\x00",
    "$SRV",
]

ROWS = [row for row in SUBJECTS if row.pattern.startswith("gym.")]


def good_names(row: Subject) -> dict[str, Any]:
    """Good names for the places of a pattern, in order."""
    return {place: 7 if f"<{place}>" in NUMBERS else "x" for place in re.findall(r"<(\w+)>", row.pattern)}


def of_pattern(row: Subject) -> str:
    return row.pattern


@pytest.mark.parametrize("hostile", [*HOSTILE, None, 7, b"x", ["x"]])
def test_a_hostile_name_never_enters_a_subject(hostile: Any) -> None:
    for row in ROWS:
        good = good_names(row)
        for place, value in good.items():
            if value == "x":
                names = (good | {place: hostile}).values()
                if hostile == LONG and place in LONG_NAMES:
                    assert LONG not in row.of(*names)
                    continue
                with pytest.raises(BadToken):
                    pytest.fail(f"{row.pattern} became {row.of(*names)}")


@pytest.mark.parametrize("name", ["a" * 65, "b-_" * 85])
def test_a_long_instance_name_becomes_a_token_of_its_own(name: str) -> None:
    found = subjects.instance(name)
    assert subjects.is_token(found)
    assert found[:47] == name[:47]
    assert found not in (subjects.instance(name + "c"), subjects.instance(name[:64]))
    assert subjects.TASK.of("run", name) == f"gym.tasks.run.{found}"


@pytest.mark.parametrize("name", ["", "a.b", "a b" * 30, "*" * 70, "a" * 257, "a" * 70 + "\n", None])
def test_other_names_are_refused_whatever_their_length(name: Any) -> None:
    with pytest.raises(BadToken):
        subjects.instance(name)


@pytest.mark.parametrize("hostile", ["1.2", "*", "7", 1.5, [1], None])
def test_what_is_no_number_never_enters_a_subject(hostile: Any) -> None:
    for row in ROWS:
        good = good_names(row)
        for place, value in good.items():
            if value == 7:
                with pytest.raises((ValueError, TypeError)):
                    pytest.fail(f"{row.pattern} became {row.of(*(good | {place: hostile}).values())}")


@pytest.mark.parametrize("row", ROWS, ids=of_pattern)
def test_names_take_their_places_in_the_pattern(row: Subject) -> None:
    names = good_names(row)
    full = re.sub(r"<(\w+)>", lambda place: str(names[place[1]]), row.pattern)
    assert row.of(*names.values()) == full
    assert row.of() == row.wildcard == re.sub(r"<\w+>", "*", row.pattern)
    for count in range(1, len(names) + 1):
        some = list(names.values())[:count]
        assert full.startswith(row.begun(*some))
        assert row.of(*some).startswith(row.begun(*some))
    with pytest.raises(ValueError, match="longer"):
        row.of(*names.values(), "x")


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
        ("$SRV.PING", subjects.ANY_ROLE),
    ],
)
def test_each_request_is_answered_by_one_role(subject: str, role: str) -> None:
    assert subjects.answered_by(subject) == role


def test_a_reply_subject_names_the_role_that_asked() -> None:
    assert subjects.asked_by(subjects.reply("agent", "model", "box", "name")) == "agent"


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
    assert RolloutId.of_subject(subject) == found
    assert RolloutId.of_subject(subject.replace("gym.rollouts.", "gym.done.", 1)) == found
    # The same parts as a string, which begins with the run.
    assert RolloutId.parse(subject.removeprefix("gym.rollouts.").replace(".", "/")) == found


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), st.integers(0, 2**53), st.integers(0, 2**53))
def test_the_string_form_of_a_rollout_is_read_back(run: str, task_index: int, rollout_index: int) -> None:
    rollout = RolloutId(run, task_index, rollout_index)
    assert f"{rollout}" == f"{run}/{task_index}/{rollout_index}"
    assert RolloutId.parse(str(rollout)) == rollout
    assert RolloutId.of_subject(subjects.ROLLOUT.of(*rollout)) == rollout
    assert RolloutId.run_of(str(rollout)) == run


@pytest.mark.parametrize("text", ["", "-", "by-hand", "run/0", "run/0/0/1", "run/0/-1", "r n/0/0", "/0/0", "run/0/0\n"])
def test_a_string_that_names_no_rollout_is_noticed(text: str) -> None:
    assert RolloutId.parse(text) is None


def test_a_refusal_says_what_would_be_right() -> None:
    with pytest.raises(BadToken, match=r"run 'a\.b' must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -"):
        subjects.TASK.of("a.b", "agent")


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject, or the filter of a subscription, is one of those that a row of the table is about."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if tokens[-1] == ">":
        tokens[-1:] = ["*"] * (len(wanted) - len(tokens) + 1)
    return len(wanted) == len(tokens) and all(
        token in (want, "*") or (want.startswith("<") and (token.isdecimal() or want not in NUMBERS))
        for want, token in zip(wanted, tokens, strict=True)
    )


def spelled_out(file: Path) -> list[str]:
    """The subjects that the code of a file spells out."""
    texts = [
        node.value
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [text for text in texts if text.startswith(("gym.", "$SRV"))]


def test_no_other_module_spells_a_subject_out() -> None:
    package = Path(gymq.__file__).parent
    spelled = {file.relative_to(package).as_posix() for file in package.rglob("*.py") if spelled_out(file)}
    # The permissions of the roles name rows of the table, which are looked up there.
    assert spelled - {"ext/auth/roles.py"} == {"protocol/subjects.py"}


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
    known = vars(messages) | vars(journal_messages) | vars(replica_messages)
    assert all(issubclass(known[name], Message) for name in named)


def commands() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.startswith("gym ")]


def test_every_example_of_the_page_is_the_message_that_its_subject_takes() -> None:
    published = [words for words in commands() if words[1] in ("pub", "request")]
    assert len(published) >= 6
    for _, _, subject, body in published:
        row = next(row for row in SUBJECTS if matches(row.pattern, subject))
        requests = [exchange.split(" → ")[0] for exchange in row.messages.split(", ")]
        Decoder(*(getattr(messages, name) for name in requests))(body.encode())
