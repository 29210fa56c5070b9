"""Each role may do what roles.md says, and nothing else: every operation is tried, against a real server."""

import re
from pathlib import Path

import pytest
from nats.errors import Error as NatsError

from gymq.bus import streams
from gymq.ext.auth.roles import ROLES
from gymq.protocol import subjects

from .conftest import RawClients, RoleServer
from .raw_client import RawClient

PAGE = Path(__file__).with_name("roles.md").read_text()
NAMES = [role.name for role in ROLES]

_SECTION = re.compile(r"^## (Publish|Subscribe)$(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^- `([^`]+)`(?: in group `(\w+)`)?(?:: (.+))?$", re.MULTILINE)


def attempts() -> list[tuple[str, str, str, set[str]]]:
    """Verb, subject, queue group and who may, from the lists in the document."""
    found = []
    for verb, section in _SECTION.findall(PAGE):
        for subject, group, roles in _LINE.findall(section):
            listed = set(roles.split(", ")) - {""}
            assert listed < set(NAMES), subject
            found.append((verb.lower(), subject, group, listed | {"operator"}))
    return found


async def try_it(client: RawClient, verb: str, subject: str, group: str) -> bool:
    if verb == "publish":
        return await client.may_publish(subject)
    return await client.may_subscribe(subject, group)


@pytest.mark.parametrize("name", NAMES)
async def test_a_role_may_do_what_the_page_says_and_nothing_else(name: str, raw: RawClients) -> None:
    client = await raw.connect(name)
    wrong = [
        f"{verb} {subject} {group}: {'denied' if name in may else 'allowed'}"
        for verb, subject, group, may in attempts()
        if await try_it(client, verb, subject, group) is not (name in may)
    ]
    assert not wrong


def test_the_page_tries_every_subject_of_the_contract_and_every_stream() -> None:
    tried = {(verb, subject) for verb, subject, _, _ in attempts()}
    published = [subject for verb, subject in tried if verb == "publish"]
    for row in subjects.SUBJECTS:
        if row.pattern.startswith("gym."):
            pattern = re.sub(r"<\w+>", r"[\\w-]+", re.escape(row.pattern).replace(r"\<", "<").replace(r"\>", ">"))
            assert any(re.fullmatch(pattern, subject) for subject in published), row.pattern
    for stream in streams.stream_configs():
        assert any(stream in subject.split(".") for subject in published), stream


def test_every_role_may_do_something_that_the_lists_name() -> None:
    assert set().union(*(may for _, _, _, may in attempts())) == set(NAMES)


async def test_nobody_connects_without_a_password(role_server: RoleServer) -> None:
    for login in ("", "client@", "client:guess@", f"agent:{role_server.password('client')}@"):
        with pytest.raises(NatsError, match=r"(?i)authorization"):
            await RawClient.connect(role_server.url.replace("://", f"://{login}"), "client")


async def test_a_message_of_the_usual_size_fits(raw: RawClients) -> None:
    client = await raw.connect("agent")
    assert await client.may_publish("gym.model.policy", b"x" * (8 << 20))
