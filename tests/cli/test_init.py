"""gymq init: files that work as they are, and never in the place of others."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "checks"),
    [
        (["capitals"], ["its tests", "example rows", "in this process", "end to end"]),
        (["my_agent", "--agent", "--folder", "agents/mine"], ["its tests", "example rows", "end to end"]),
    ],
)
def test_what_it_makes_passes_its_own_test_as_it_stands(gymq, here, arguments, checks):
    made = gymq("init", *arguments)
    assert made.status == 0
    folder = here / ("agents/mine/my_agent" if "--agent" in arguments else "capitals")
    command = next(line.strip() for line in made.out.splitlines() if line.strip().startswith("gymq test"))
    called = gymq(*command.split()[1:])
    assert called.status == 0, called.out
    assert [line[2:19].strip() for line in called.out.splitlines()[1:] if line[2] != " "] == checks
    assert "mean reward 1.00" in called.out
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sorted(path.relative_to(folder).as_posix() for path in files) == [
        "README.md",
        "config.yaml",
        "data/example.jsonl",
        f"tests/test_{folder.name}.py",
        "worker.py",
    ]


def test_the_configuration_it_makes_has_no_mistakes(gymq, here):
    gymq("init", "capitals")
    policy = "workers/models/simulated_model/config.yaml"
    assert gymq("config", "check", "-c", "capitals/config.yaml", "-c", policy).status == 0


def test_nothing_is_overwritten_and_nothing_else_is_made(gymq, here):
    (here / "capitals").mkdir()
    (here / "capitals" / "README.md").write_text("mine")
    called = gymq("init", "capitals")
    assert called.status == 2
    assert "capitals/README.md" in called.err
    assert [path.name for path in (here / "capitals").iterdir()] == ["README.md"]
    assert (here / "capitals" / "README.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["3x", "a-b", "class", "ünder", "a.b", "../up", "x" * 41, ""])
def test_a_name_that_is_no_identifier_is_refused(gymq, here, name):
    called = gymq("init", name)
    assert called.status == 2
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "_", "a1_b__c", "_2x", "Camel"])
def test_every_identifier_gives_a_class_that_loads(gymq, here, name):
    gymq("init", name)
    policy = "workers/models/simulated_model/config.yaml"
    called = gymq("config", "check", "-c", f"{name}/config.yaml", "-c", policy)
    assert called.status == 0, called.err


def test_a_folder_that_cannot_be_written_is_one_sentence(gymq, here):
    (here / "file").write_text("")
    called = gymq("init", "capitals", "--folder", "file")
    assert called.status == 2
    assert "cannot be written" in called.err
