"""gymq audit: what it prints, and its exit status."""

import json

import pytest

from gymq.ext.audit import audited, behaviour, checks


@pytest.fixture
def made(gymq, here):
    """The folder of a new environment."""
    assert gymq("init", "capitals").status == 0
    return here / "capitals"


def test_an_environment_as_init_makes_it_passes(gymq, made):
    called = gymq("audit", "./capitals", "--json")
    assert called.status == 0, called.out
    report = json.loads(called.out)
    assert report["ok"]
    assert report["environment"] == "capitals"
    assert {check["status"] for check in report["checks"]} == {"ok", "none"}
    assert report["verdicts"] > 100


def test_an_environment_with_turns_is_played(gymq, here):
    assert gymq("init", "guesses", "--template", "multi-turn").status == 0
    called = gymq("audit", "./guesses", "--only", "gold", "an idle session")
    assert called.status == 0, called.out
    assert "5 right replies get their reward" in called.out


def test_what_is_found_is_shown_and_ends_with_status_1(gymq, made):
    worker = made / "worker.py"
    worker.write_text(worker.read_text().replace("gymq.Verdict(float(correct)", "gymq.Verdict(1.0"))
    called = gymq("audit", "./capitals", "--only", "gold", "empty")
    assert called.status == 1
    assert "an empty text: reward 1, no more than 0 is due" in " ".join(called.out.split())
    assert "capitals: 1 of 2 checks found something" in called.out


@pytest.mark.parametrize(
    "place", ["./capitals", "./capitals/worker.py", "./capitals/config.yaml", "capitals.worker:Capitals"]
)
def test_an_environment_is_named_in_many_ways(gymq, made, place):
    called = gymq("audit", place, "--only", "gold")
    assert called.status == 0, called.err
    assert "5 right replies get their reward" in called.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["./capitals", "--only", "noise"],
            "neither a check nor a reply has this name; choose from gold, dressed answers",
        ),
        (["nothing_here"], "no worker named 'nothing_here'"),
        (["./nothing/config.yaml"], "./nothing/config.yaml: the file does not exist"),
        (["simple_agent"], "no worker named 'simple_agent'"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_status_2(gymq, made, arguments, said):
    called = gymq("audit", *arguments)
    assert called.status == 2
    assert said in " ".join(called.err.split())


def test_a_slow_environment_is_given_some_replies_of_each_kind(gymq, made, monkeypatch):
    for module in (behaviour, checks):
        monkeypatch.setattr(module, "CHECK_S", 0.0)
    called = gymq("audit", "./capitals", "--json")
    assert called.status == 0, called.out
    report = json.loads(called.out)
    said = {check["name"]: check["summary"] for check in report["checks"]}
    assert "of 25 replies (no time for more)" in said["empty"]
    assert "verdicts (no time for more)" in said["same twice"]
    assert {check["status"] for check in report["checks"]} == {"ok", "none"}


def test_a_verifier_that_does_not_end_is_found(gymq, made, monkeypatch):
    monkeypatch.setattr(audited, "OUTCOME_S", 0.2)
    worker = made / "worker.py"
    text = worker.read_text().replace("        correct =", "        await asyncio.Event().wait()\n        correct =")
    assert "Event" in text
    worker.write_text(text.replace("import gymq\n", "import asyncio\n\nimport gymq\n"))
    called = gymq("audit", "./capitals", "--only", "gold")
    assert called.status == 1
    assert "deadline_exceeded: no verdict within 0.2 s, expected 1" in " ".join(called.out.split())
