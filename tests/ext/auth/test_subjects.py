"""`subjects.md` names the roles that may use each subject."""

import re

import pytest

from gymq.bus.credentials import OPERATOR
from gymq.ext.auth.roles import ROLES, Role
from gymq.protocol.subjects import SUBJECTS, Subject
from tests.protocol.test_subjects import table

EXAMPLES = {"task": "7", "rollout": "7", "n": "7", "verb": "PING"}


def concrete(pattern: str, **names: str) -> str:
    """One subject of a row of the table."""
    for optional in ("[.<name>[.<id>]]", ".>"):
        pattern = pattern.removesuffix(optional) + (".x" if pattern.endswith(optional) else "")
    return re.sub(r"<(\w+)>", lambda found: (names | EXAMPLES).get(found[1], "x"), pattern)


def covers(permission: str, subject: str) -> bool:
    """Return whether NATS lets a permission, or a filter, stand for a subject."""
    wanted, tokens = permission.partition(" ")[0].split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(tokens) >= len(wanted) and covers(".".join(wanted[:-1]), ".".join(tokens[: len(wanted) - 1]))
    return len(wanted) == len(tokens) and all(want in (token, "*") for want, token in zip(wanted, tokens, strict=True))


def may_publish(role: Role, subject: str) -> bool:
    return any(covers(one, subject) for one in role.publish) and not any(
        covers(one, subject) for one in role.never_publish
    )


def may_receive(role: Role, row: Subject, subject: str) -> bool:
    """Return whether a role may subscribe to a subject, or read the messages on it from their stream."""
    reads = [
        f"$JS.API.DIRECT.GET.{row.stream}",
        f"$JS.API.STREAM.MSG.GET.{row.stream}",
        f"$JS.API.DIRECT.GET.{row.stream}.{subject}",
        f"$JS.API.CONSUMER.MSG.NEXT.{row.stream}.{concrete(row.group)}",
    ]
    is_heard = any(covers(one, subject) for one in role.subscribe)
    return is_heard or (row.stream != "-" and any(may_publish(role, one) for one in reads))


def named(cell: str) -> set[str]:
    """The roles that a cell of the table names."""
    return set(re.findall(r"`(\w+)`", cell))


@pytest.mark.parametrize("row", SUBJECTS, ids=lambda row: row.pattern)
def test_the_page_names_exactly_the_roles_that_may_use_a_subject(row: Subject) -> None:
    (shown,) = [line for line in table() if line["subject"].strip("`") == row.pattern]
    roles = [role for role in ROLES if role.name != OPERATOR]
    # Some roles have a part of a subject alone: pings of the workers that they call, dead letters with their own name.
    names = {name for role in roles for name in (role.name, "intake", "janitor")}
    subjects_of_row = {concrete(row.pattern, role=name, source=name) for name in names}
    publish = {role.name for role in roles if any(may_publish(role, one) for one in subjects_of_row)}
    receive = {role.name for role in roles if any(may_receive(role, row, one) for one in subjects_of_row)}
    assert named(shown["published by"]) == publish
    assert named(shown["received by"]) == receive


def test_a_role_that_a_permission_leaves_out_is_noticed() -> None:
    assert covers("gym.tasks.*.*", "gym.tasks.run.agent")
    assert not covers("gym.tasks.*.*", "gym.tasks")
    assert covers("$SRV.>", "$SRV.PING.x")
    assert not covers("$SRV.>", "$SRV")
    (agent,) = [role for role in ROLES if role.name == "agent"]
    assert not may_publish(agent, "$JS.API.CONSUMER.MSG.NEXT.TASKS.intake")
    assert named("`agent`, `services` (janitor), with `gymq dead-letters`") == {"agent", "services"}
