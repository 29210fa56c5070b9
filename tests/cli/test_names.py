"""Names in listings: whole on a terminal of 80 and of 120 columns, and through a pipe, so that they can be copied."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from gymq.cli.shared.table import profile_table
from gymq.execution.loading.registry import worker_names
from gymq.render import listing, print_prose, shown_environments
from gymq.stats.running import RunningProfile

from .conftest import Command, Finished

AGENTS = ("example_session_state_mgmt_simple_agent", "mcqa_simple_agent")


@pytest.fixture
def commands(cluster: Finished) -> dict[str, tuple[list[object], list[str]]]:
    """Commands that list something, each with names that it prints."""
    run, config = cluster.run, cluster.config
    return {
        "list": (["list", "resources"], worker_names("resources")),
        # Of the runs these two list the newest only, which may be those of other tests.
        "status": (["status"], ["letters_agent", "policy_model", "letters.py", "simple_agent", "DEAD_LETTERS"]),
        "rollouts": (["rollouts"], [run]),
        "rollouts of a run": (["rollouts", "--run", run], [run]),
        "failed": (["rollouts", "--run", run, "--failed"], [run, "judge_failed", "verify"]),
        "profile": (["profile", "--run", run], [run, "letters_agent", "output_tokens"]),
        "dead letters": (["dead-letters", "list"], [f"{run}/2/3", "judge_failed"]),
        "config": (
            ["config", "check", "-c", config],
            ["letters_agent", "policy_model", str(cluster.folder / "policy.py")],
        ),
        "roles": (["auth", "show"], ["operator", "services"]),
    }


LISTINGS = (
    *("list", "status", "rollouts", "rollouts of a run", "failed", "profile", "dead letters", "config", "roles"),
)


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("which", LISTINGS)
def test_names_are_whole_on_a_terminal(
    gymq: Command, commands, which: str, columns: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if what is printed went to a terminal
    command, expected = commands[which]
    called = gymq(*command)
    assert called.status == 0, called.err
    assert [name for name in expected if name not in called.out] == []


@pytest.mark.nightly
@pytest.mark.parametrize("which", LISTINGS)
def test_names_are_whole_through_a_pipe_and_no_line_ends_with_blanks(gymq: Command, commands, which: str):
    command, expected = commands[which]
    piped = gymq(*command)
    assert piped.status == 0, piped.err
    assert [name for name in expected if name not in piped.out] == []
    assert "…" not in piped.out
    if which != "roles":
        assert [line for line in piped.out.splitlines() if line != line.rstrip()] == []


def drawn_at(width: int, table: object) -> str:
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def example() -> object:
    table = listing("workers", "name", "kind", "load", "what it does", numbers=("load",), names=("kind",))
    table.add_row("a_name_of_thirty_characters_xxx", "resources", "1,024", "It does one thing, and that it does well.")
    table.add_row("short", "models", Text("1"), "Nothing.")
    return table


def test_prose_is_wrapped_between_words_where_there_is_no_room():
    assert drawn_at(80, example()).splitlines() == [
        "workers",
        "name                             kind        load  what it does",
        "────────────────────────────────────────────────────────────────────────────────",
        "a_name_of_thirty_characters_xxx  resources  1,024  It does one thing, and that",
        "                                                   it does well.",
        "short                            models         1  Nothing.",
    ]


def test_columns_that_can_be_spared_are_left_out_before_the_table_becomes_a_list():
    table = listing("", "name", "kind", "load", numbers=("load",), names=("kind",), spare=("load", "kind"))
    table.add_row("policy_model", "simulated_model", "1,024")
    assert drawn_at(36, table).splitlines()[-1] == "policy_model  simulated_model  1,024"
    assert drawn_at(35, table).splitlines()[2:] == [
        "policy_model  simulated_model",
        "not shown for lack of room: load",
    ]
    assert "not shown for lack of room: load, kind" in drawn_at(12, table).replace("\n", " ")


def test_the_rewards_of_a_demo_are_a_table_at_100_columns():
    profile = RunningProfile()
    for task in range(120):
        for rollout in range(16):
            reward = float(rollout % (task % 3 + 2) == 0)
            profile.add(AGENTS[task // 60], task, rollout, reward=reward, num_rollouts=16)
    lines = drawn_at(100, profile_table(profile.snapshot(), run="demo", models=["policy_model"])).splitlines()
    rows = [line.split() for line in lines if line.startswith(("example_session_state_mgmt ", "mcqa "))]
    assert [row[-3:] for row in rows] == [["60", "960", "-"]] * 2  # tasks, rollouts, failed
    assert lines[-1] == "not shown for lack of room: pass@4"


def profile_of(rewards: dict[str, list[list[float | None]]]) -> RunningProfile:
    """A profile of the rewards of each agent's tasks; None: the rollout failed."""
    profile, task = RunningProfile(), 0
    for agent, tasks in rewards.items():
        for of_task in tasks:
            for rollout, reward in enumerate(of_task):
                place = (agent, task, rollout)
                if reward is None:
                    profile.add_failure(*place, failure_class="verifier_failed", final=True, num_rollouts=len(of_task))
                else:
                    profile.add(*place, reward=reward, num_rollouts=len(of_task))
            task += 1
    return profile


def test_a_table_shows_the_rates_that_all_tasks_have():
    """As of four rows with two equal ones: one task has eight rollouts, the others four."""
    profile = profile_of({"dup": [[1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]]})
    lines = drawn_at(100, profile_table(profile.snapshot(), run="r")).splitlines()
    heading, _, row = lines[3:6]
    assert heading.split()[2:] == ["mean", "reward", "pass@1", "pass@4", "tasks", "rollouts", "failed"]
    assert row.split() == ["dup", "0.250", "25.0", "59.5", "3", "16", "-"]
    assert "pass@8" not in "\n".join(lines[:-1])
    asked = drawn_at(100, profile_table(profile.snapshot([8]), run="r", ks=[8])).splitlines()
    assert asked[5].split() == ["dup", "0.250", "100.0", "3", "16", "-"]
    assert "1 of 3 tasks" in asked[6]


@pytest.mark.parametrize("num_agents", [1, 2, 4])
def test_a_failed_run_looks_failed_at_80_columns(num_agents: int):
    tasks: list[list[float | None]] = [[1.0] * 7 + [None] * 9, [1.0] * 15 + [None] * 9]
    profile = profile_of(dict.fromkeys([*AGENTS, "b", "c"][:num_agents], tasks))
    lines = drawn_at(80, profile_table(profile.snapshot(), run="r")).splitlines()
    heading, _, row, bound = lines[3:7]
    assert heading.split()[-1] == "failed"
    assert row.split()[1] == "1.000"
    assert row.split()[-1] == "18"
    assert bound.split() == ["≥", "0.531"]
    assert "22 of 40" in row or num_agents > 1
    assert any(line.startswith("all ") for line in lines) == (num_agents > 1)
    assert any(line.startswith("pass@15 is left out: not every task has 15 rewards") for line in lines)


class TerminalOf40(io.StringIO):
    def isatty(self) -> bool:
        return True


SENTENCE = "a sentence about /a/folder/with/a/file/of/a/very/long-name.jsonl, whole\n    f:3 in verify: \x1b[2J"


def test_sentences_are_wrapped_between_words_and_names_stay_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    terminal, pipe = TerminalOf40(), io.StringIO()
    print_prose(SENTENCE, terminal)
    assert terminal.getvalue().splitlines() == [
        "a sentence about",
        "  /a/folder/with/a/file/of/a/very/long-name.jsonl,",
        "  whole",
        "    f:3 in verify: <1b>[2J",
    ]
    print_prose(SENTENCE, pipe)
    assert pipe.getvalue() == SENTENCE.replace("\x1b", "<1b>") + "\n"


def test_a_table_that_does_not_fit_is_a_list_of_its_rows():
    assert drawn_at(40, example()).splitlines() == [
        "workers",
        "a_name_of_thirty_characters_xxx",
        "  kind          resources",
        "  load          1,024",
        "  what it does  It does one thing, and",
        "                that it does well.",
        "short",
        "  kind          models",
        "  load          1",
        "  what it does  Nothing.",
    ]


def test_text_that_looks_like_markup_is_shown_as_it_is():
    table = listing("", "name")
    table.add_row("[bold]a[/bold]")
    assert "[bold]a[/bold]" in drawn_at(80, table)


def test_environments_are_shown_without_the_usual_end_of_their_agent():
    assert shown_environments(["mcqa_simple_agent", "voter"]) == {"mcqa_simple_agent": "mcqa", "voter": "voter"}
    assert list(shown_environments(["b_simple_agent", "c", "a"])) == ["a", "b_simple_agent", "c"]
    both = ["mcqa_simple_agent", "mcqa", "_simple_agent"]
    assert shown_environments(both) == {name: name for name in both}
