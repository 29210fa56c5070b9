"""A collection as a person sees it: on a terminal of 80 and of 120 columns, through a pipe, and in a notebook."""

import asyncio
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from rich.console import Console

from gymq.bus.rpc.process_reports import SlowestCall
from gymq.runs.collection.progress import Progress
from gymq.runs.collection.progress_view import BAR, _View, show_progress, shown_reward
from gymq.stats.intervals import Estimate, Interval
from gymq.testing import reply

from .conftest import LETTERS, Command, Finished, entry, row
from .endpoint import PROBE, prompt_of, served

LONG_S = 600

E = TypeVar("E", bound="Limited")


class Terminal:
    """A command of gymq on a pseudo terminal."""

    def __init__(
        self,
        columns: int,
        *command: object,
        rows: int = 40,
        has_keys: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._settings = termios.tcgetattr(self._ours)
        kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        kept |= {"TERM": "xterm-256color", **(environment or {})}
        given = [*entry(), *map(str, command)]
        stdin = theirs if has_keys else subprocess.DEVNULL
        self._process = subprocess.Popen(given, stdin=stdin, stdout=theirs, stderr=theirs, env=kept, close_fds=True)
        os.close(theirs)
        self._drawn = bytearray()

    def read_until(self, text: str) -> None:
        """Read until something was drawn.

        Raises:
            AssertionError: the command ended, or took too long, without it.
        """
        give_up = time.monotonic() + LONG_S
        while text.encode() not in self._drawn:
            readable, _, _ = select.select([self._ours], [], [], max(0.0, give_up - time.monotonic()))
            assert readable, self._drawn.decode()
            assert self._read(), self._drawn.decode()
        del self._drawn[: self._drawn.index(text.encode())]

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Return the exit status and what was drawn, once the command has left the terminal as it was."""
        with self._process:
            while self._read():
                pass
            status = self._process.wait(LONG_S)
        assert termios.tcgetattr(self._ours) == self._settings
        os.close(self._ours)
        return status, self._drawn.decode()

    def _read(self) -> bool:
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # the last process that had the terminal has ended
            return False
        self._drawn += piece
        return bool(piece)


def on_terminal(columns: int, *command: object, **environment: str) -> tuple[int, str]:
    """Run a command of gymq on a pseudo terminal; return its exit status and everything that was drawn."""
    return Terminal(columns, *command, environment=environment).end()


def collection(cluster: Finished, output: Path) -> list[object]:
    return ["collect", "-c", cluster.config, "--rows", "rows.jsonl", "-o", output, "--num-repeats", 4]


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.nightly)])
def test_a_terminal_shows_how_far_a_collection_is(cluster: Finished, tmp_path: Path, columns: int):
    status, drawn = on_terminal(columns, *collection(cluster, tmp_path / "rollouts.jsonl"))
    assert status == 3
    assert "Traceback" not in drawn
    assert "12/12" in drawn
    assert "rollouts/s" in drawn
    assert "4 failed (judge_failed 4" in drawn
    before_the_end = drawn[: drawn.index("environment (agent)")]
    assert "\x1b[?25l" in before_the_end, "nothing was drawn in place"


class Limited:
    """An endpoint that answers the first request of a start, and the others with 429 until the test lets it answer."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.host = ""

    def answer(self, _path: str, body: Any) -> tuple[int, dict[str, Any]]:
        if prompt_of(body) != PROBE and not self.answers.is_set():
            return 429, {"error": "slow down"}
        return 200, {**reply("A"), "usage": {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}}


class Held(Limited):
    """One that answers the first request of a start, and the others when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Semaphore(0)

    def answer(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        if prompt_of(body) != PROBE:
            self.asked.release()
            self.answers.wait(LONG_S)
        return super().answer(path, body)


@pytest.fixture
def limited(here: Path) -> Iterator[Limited]:
    """The endpoint, in an empty folder with a verifier and two rows."""
    yield from serve(Limited(), here)


@pytest.fixture
def held(here: Path) -> Iterator[Held]:
    """The other endpoint, in such a folder."""
    yield from serve(Held(), here)


def serve(endpoint: E, here: Path) -> Iterator[E]:
    (here / "letters.py").write_text(LETTERS)
    (here / "rows.jsonl").write_text("".join(json.dumps(row(text, "A")) + "\n" for text in ("first", "second")))
    with served(endpoint.answer) as url:
        endpoint.host = url.removeprefix("http://").removesuffix("/v1")
        yield endpoint


def with_endpoint(endpoint: Limited) -> list[object]:
    url = f"http://{endpoint.host}/v1"
    return [
        "collect",
        "--resources",
        "letters.py",
        "--rows",
        "rows.jsonl",
        "-o",
        "x.jsonl",
        "--model-url",
        url,
        "--model",
        "m",
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("columns", [80, 120])
def test_a_rate_limit_is_named_with_its_host_while_it_is_waited_for(limited: Limited, columns: int):
    terminal = Terminal(columns, *with_endpoint(limited))
    terminal.read_until(f"rate limited by {limited.host} (429), 2 waiting")
    limited.answers.set()
    status, drawn = terminal.end()
    assert status == 0, drawn
    assert "mean reward 1.000" in drawn
    assert "model calls retried" in drawn


@pytest.mark.nightly
def test_nothing_of_the_steps_before_a_refusal_stays_on_a_terminal(cluster: Finished, tmp_path: Path):
    command = collection(cluster, tmp_path / "rollouts.jsonl")
    on_terminal(80, *command)
    status, drawn = on_terminal(80, *command[:-1], 3)
    assert status == 2
    up_and_erase = "\x1b[1A\x1b[2K"
    before, _, refusal = drawn.rpartition("gymq:")
    assert refusal.strip().startswith(f"{tmp_path}")
    assert up_and_erase in before[before.rindex("starting") :]


@pytest.mark.nightly
def test_a_run_without_a_reward_ends_with_its_failures_alone(gymq, here: Path):
    (here / "letters.py").write_text(LETTERS.replace("request.row.answer ==", "request.row.answr =="))
    (here / "rows.jsonl").write_text(json.dumps(row("first", "A")))
    ended = gymq("collect", "--resources", "letters.py", "--rows", "rows.jsonl")
    assert ended.status == 3
    assert "mean reward" not in ended.out
    assert "gymq profile" not in ended.out
    assert "gymq: 1 of 1 rollout failed:\n  1 verifier_failed, for example: letters failed to verify" in ended.err
    assert f"{here}/letters.py:18 in verify: " in ended.err


@pytest.mark.nightly
def test_a_rate_limit_is_named_in_a_pipe(limited: Limited):
    with subprocess.Popen(
        [*entry(), *map(str, with_endpoint(limited))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        named = next((line for line in process.stderr if f"rate limited by {limited.host} (429)" in line), "")
        limited.answers.set()
        process.communicate(timeout=LONG_S)
    assert "0/2, 0.0 rollouts/s, 2 in flight" in named
    assert process.returncode == 0


def test_a_run_that_is_terminated_ends_with_how_to_resume_it(held: Held):
    with subprocess.Popen(
        [*entry(), *map(str, with_endpoint(held))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert all(held.asked.acquire(timeout=LONG_S) for _ in range(2))
        process.send_signal(signal.SIGTERM)  # as at Ctrl-C, which a test of kills has
        next(line for line in process.stderr if line.startswith("gymq: stopping: "))
        held.answers.set()  # what is in flight is finished, and no longer waited for
        said = process.stderr.read()
    assert process.returncode == 143
    assert said.endswith(" was interrupted: 0 of 2 done, 2 in flight; the same command resumes it\n")
    assert said.count("\n") == 1


@pytest.mark.nightly
def test_a_cancelled_run_ends_without_the_promise_that_it_goes_on(gymq, held: Held):
    with subprocess.Popen([*entry(), *map(str, with_endpoint(held))], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert all(held.asked.acquire(timeout=LONG_S) for _ in range(2))
        begun = next(line for line in process.stderr if line.startswith("gymq: run "))
        assert gymq("cancel", "--run", begun.split()[2].removesuffix(":")).status == 0
        held.answers.set()
        said = process.stderr.read()
    assert process.returncode == 3
    assert " was cancelled: 0 of 2 rollouts have a reward; --overwrite starts over" in said
    assert "the same command" not in said
    assert "2 of 2, cancelled" in gymq("rollouts").out


@pytest.mark.nightly
def test_a_command_of_a_notebook_draws_no_lines_in_place(cluster: Finished, tmp_path: Path):
    for notebook in ({"JPY_PARENT_PID": "1"}, {"TERM": "xterm-color", "PAGER": "cat"}):
        _, drawn = on_terminal(80, *collection(cluster, tmp_path / f"{len(notebook)}.jsonl"), **notebook)
        before_the_end = drawn[: drawn.index("environment (agent)")]
        assert "\x1b[?25l" not in before_the_end
        assert "\x1b[1A" not in before_the_end


async def test_the_kernel_of_a_notebook_updates_one_line(monkeypatch: pytest.MonkeyPatch):
    shown: list[str] = []
    updated = asyncio.Event()

    class Handle:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(data["text/plain"])
            updated.set()

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        shown.append(data["text/plain"])
        return Handle()

    ipython, of_display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    vars(ipython)["get_ipython"] = lambda: types.SimpleNamespace(kernel=object())
    vars(of_display)["display"] = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", of_display)
    progress = Progress(total=4, done=1)
    with show_progress(progress, quiet=False):
        async with asyncio.timeout(LONG_S):
            await updated.wait()
    assert shown[0] == "starting"
    assert shown[1].startswith("1/4, ")


def test_everything_that_is_known_is_on_the_line():
    progress = Progress(total=3600, done=32, failures=Counter({"judge_failed": 2, "stale": 1}), in_flight=64)
    for task in range(32):
        progress.rewards.add(task, 1, float(task % 2))
    progress.retried, progress.model_retries = 2, 40
    progress.waits = {"rate limited by h (429)": 8, "\x1b[2Jx": 1}
    progress.slowest = SlowestCall("model call", 41.4)
    progress.last_change -= 100
    progress.viewer_url = "http://127.0.0.1:1/runs/x"
    line = _View(progress).line().plain
    for part in (
        "35/3,600",
        "64 in flight",
        "mean reward 0.500 (0.317 to 0.683)",
        "3 failed (judge_failed 2, stale 1)",
        "2 rollouts retried",
        "40 model calls retried",
        "rate limited by h (429), 8 waiting",
        "<1b>[2Jx, 1 waiting",
        "slowest model call 41 s",
        "nothing finished for 100 s",
    ):
        assert part in line
    console = Console(width=80, force_terminal=True, color_system=None)
    with console.capture() as drawn:
        console.print(_View(progress))
    lines = drawn.get().splitlines()
    assert "35/3,600, 0.0 rollouts/s, 64 in flight" in lines[0]
    assert lines[-1] == "viewer: http://127.0.0.1:1/runs/x"
    assert max(map(len, lines)) <= 80


def test_a_run_that_ended_shows_no_spinner_and_no_rate_that_was_not_measured():
    progress = Progress(total=2, done=2)
    console = Console(width=80, force_terminal=True, color_system=None)
    with console.capture() as drawn:
        console.print(_View(progress))
    assert drawn.get() == f"{'━' * BAR} 2/2\n"


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        (Interval(0.4, 0.6), "0.500 (0.400 to 0.600)"),
        (Interval(0.0, 0.73), "0.500 (0.000 to 0.730)"),
        (None, "0.500"),
    ],
)
def test_an_interval_is_shown_by_its_ends_since_one_may_be_clipped_at_a_bound(interval: Interval | None, shown: str):
    assert shown_reward(Estimate(0.5, interval, tasks=4)) == shown


@pytest.mark.nightly
def test_names_are_whole_on_a_narrow_terminal(cluster: Finished, tmp_path: Path):
    _, drawn = on_terminal(40, *collection(cluster, tmp_path / "rollouts.jsonl"))
    assert "\nletters_agent " in drawn
    assert "not shown for lack of room: pass@4," in drawn


def test_a_run_ends_with_its_failures_their_reasons_and_how_to_look_at_one(
    gymq: Command, cluster: Finished, tmp_path: Path
):
    for _ in ("first", "again"):
        ended = gymq(*collection(cluster, tmp_path / "rollouts.jsonl"))
        assert ended.status == 3
        assert "4 of 12 rollouts failed" in ended.err
        assert "4 judge_failed, for example: the judge is asleep" in ended.err
        assert "--task 2 --rollout" in ended.err
        header = next(line for line in ended.out.splitlines() if "environment (agent)" in line)
        assert header.split()[2:4] == ["mean", "reward"]
        assert "…" not in ended.out
