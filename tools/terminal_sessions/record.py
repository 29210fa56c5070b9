"""Record docs/terminal_sessions.md: the first commands of a new user, on a real terminal.

`python tools/terminal_sessions/record.py GYMQ` runs each scene in tmux, in an empty folder, with the command GYMQ of
an installed wheel, against the scripted endpoint beside this file, and writes what stands on the terminal.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "terminal_sessions.md"
WIDTH, HEIGHT = 120, 60
PROMPT = "$ "
COMMAND_S = 240.0

ENVIRONMENT = '''\
import gymq


class Row(gymq.Row):
    answer: str


class Capitals(gymq.Resources[Row]):
    """Reward 1 if the reply names the capital."""

    async def verify(self, request: gymq.VerifyRequest[Row]) -> gymq.Verdict:
        return gymq.Verdict(float(request.row.answer.lower() in request.reply_text.lower()))
'''
CAPITALS = {"Switzerland": "Bern", "Peru": "Lima", "Kenya": "Nairobi", "Japan": "Tokyo"}


class Terminal:
    """A bash in a tmux session."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self._name = f"gymq-{os.getpid()}-{time.monotonic_ns()}"
        environment = os.environ | {"HOME": str(folder), "TERM": "xterm-256color"} | variables
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        command = [
            "tmux",
            "-L",
            self._name,
            "new-session",
            "-d",
            *size,
            "-c",
            str(folder),
            f"env PS1='{PROMPT}' bash --norc --noprofile",
        ]
        subprocess.run(command, env=environment, check=True)
        self._tmux("set-option", "-g", "history-limit", "5000")
        self.snapshots: list[str] = []
        self._wait(self._at_prompt, 10.0)

    def run(self, command: str) -> None:
        """Type a command and wait until the prompt is there again."""
        before = self._prompts()
        self.type(command)
        self._wait(lambda: self._at_prompt() and self._prompts() > before, COMMAND_S)

    def type(self, command: str) -> None:
        self._tmux("send-keys", "-l", command)
        self._tmux("send-keys", "Enter")

    def wait_for(self, pattern: str) -> None:
        """Wait until the screen shows a text, and keep the screen as a picture of a command that runs."""
        self._wait(lambda: re.search(pattern, self.text()) is not None, COMMAND_S)
        lines = [line for line in self.text().splitlines() if line.strip()]
        self.snapshots.append("\n".join(lines[-4:]))

    def interrupt(self) -> None:
        """Press Ctrl-C and wait for the prompt."""
        self._tmux("send-keys", "C-c")
        self._wait(self._at_prompt, COMMAND_S)

    def text(self) -> str:
        """Return everything that stands on the terminal, what was scrolled away included."""
        return "\n" + self._tmux("capture-pane", "-p", "-J", "-S", "-")

    def close(self) -> None:
        self._tmux("kill-server")

    def _prompts(self) -> int:
        return sum(line.startswith(PROMPT.strip()) for line in self.text().splitlines())

    def _at_prompt(self) -> bool:
        lines = [line for line in self.text().splitlines() if line.strip()]
        return bool(lines) and lines[-1].strip() == PROMPT.strip()

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        give_up = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > give_up:
                raise SystemExit(f"the terminal still shows this after {seconds:g} s:\n{self.text().strip()}")
            time.sleep(0.1)

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._name, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@dataclass
class Scene:
    """One recorded session."""

    title: str
    remark: str
    play: Callable[[Terminal, str], None]  # with the URL of the endpoint
    variables: dict[str, str]


def collect(url: str, *more: str) -> str:
    return " ".join(["gymq collect --resources my_env.py --rows rows.jsonl", f"--model-url {url}/v1", *more])


def first_run(terminal: Terminal, _url: str) -> None:
    terminal.type("gymq demo")
    terminal.wait_for(r"in flight")
    terminal._wait(terminal._at_prompt, COMMAND_S)


def wrong_key(terminal: Terminal, url: str) -> None:
    terminal.run(collect(f"{url}/key", "--model good"))
    terminal.run("export OPENAI_API_KEY=right")
    terminal.run(collect(f"{url}/key", "--model good"))


def wrong_model(terminal: Terminal, url: str) -> None:
    terminal.run(collect(f"{url}/models", "--model best"))


def chat_only(terminal: Terminal, url: str) -> None:
    terminal.run(collect(f"{url}/chat", "--model good --num-repeats 4"))


def rate_limited(terminal: Terminal, url: str) -> None:
    terminal.type(collect(f"{url}/limited", "--model good --num-repeats 8"))
    terminal.wait_for(r"429.*waiting")
    terminal.interrupt()


def interrupted(terminal: Terminal, url: str) -> None:
    command = collect(f"{url}/slow", "--model good --num-repeats 64 --concurrency 16")
    terminal.type(command)
    terminal.wait_for(r"reward 0")
    terminal.interrupt()
    terminal.run(command)


def bad_row(terminal: Terminal, url: str) -> None:
    terminal.run("wc -l many.jsonl")
    terminal.run(f"gymq collect --resources my_env.py --rows many.jsonl --model-url {url}/good/v1 --model good")


def verifier_bug(terminal: Terminal, url: str) -> None:
    terminal.run("sed -i s/row.answer/row.answr/ my_env.py")
    terminal.run(collect(f"{url}/good", "--model good"))


def judged(terminal: Terminal, url: str) -> None:
    terminal.run("gymq init fair --template judge")
    model = f"--model-url {url}/good/v1 --model good --judge-url {url}/good/v1 --judge-model good"
    terminal.run(f"gymq collect --resources fair/worker.py --rows fair/data/example.jsonl {model}")


def notebook(terminal: Terminal, url: str) -> None:
    terminal.type("python -m IPython --no-banner --no-confirm-exit")
    terminal.wait_for(r"In \[1\]")
    terminal.snapshots.clear()
    for number, line in enumerate(
        (
            "import gymq; from my_env import Capitals",
            f"run = await gymq.acollect(Capitals, 'rows.jsonl', model='{url}/good/v1', model_name='good', repeats=4)",
            "run.reward",
            "run.pass_at_k",
            "run.to_pandas()[['prompt', 'reply', 'expected', 'reward']].head(4)",
        ),
        2,
    ):
        terminal.type(line)
        terminal.wait_for(rf"In \[{number}\]")
    terminal.snapshots.clear()
    terminal.type("exit")
    terminal._wait(terminal._at_prompt, 20.0)


SCENES = [
    Scene("The first run", "No key, no endpoint: a simulated model.", first_run, {}),
    Scene("A wrong key, then the right one", "The endpoint answers 401.", wrong_key, {"OPENAI_API_KEY": "wrong"}),
    Scene("A model that does not exist", "The endpoint answers 404.", wrong_model, {"OPENAI_API_KEY": "right"}),
    Scene("An endpoint that only speaks Chat Completions", "404 on `/responses`.", chat_only, {}),
    Scene("A rate limit that never ends", "The endpoint answers 429; Ctrl-C after a while.", rate_limited, {}),
    Scene("Ctrl-C, and the same command again", "A second for each reply.", interrupted, {}),
    Scene("A bad row at line 500", "Row 500 of 600 has no `answer`.", bad_row, {}),
    Scene("A mistake in the verifier", "A field of the row is misspelled.", verifier_bug, {}),
    Scene("An environment with a judge", "From the template; any endpoint may judge.", judged, {}),
    Scene("A notebook", "IPython, whose cells may `await`.", notebook, {}),
]


def write_files(folder: Path) -> None:
    (folder / "my_env.py").write_text(ENVIRONMENT)
    rows = [
        {"responses_create_params": {"input": f"What is the capital of {country}?"}, "answer": city}
        for country, city in CAPITALS.items()
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    many = [dict(row) for row in (rows * 150)]
    del many[499]["answer"]
    (folder / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in many))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def play(scene: Scene, url: str, commands: Path) -> str:
    """Return the scene as Markdown."""
    with tempfile.TemporaryDirectory(prefix="capitals-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        write_files(folder)
        terminal = Terminal(folder, {"PATH": f"{commands}:{os.environ['PATH']}"} | scene.variables)
        try:
            scene.play(terminal, url)
            shown = terminal.text().strip("\n").replace(str(folder), "~").replace(str(commands.parent), "~/venv")
        finally:
            terminal.close()
    lines = [line.rstrip() for line in shown.splitlines()]
    while lines and lines[-1] in ("", PROMPT.strip()):
        lines.pop()
    parts = [f"## {scene.title}", scene.remark, "```text\n" + "\n".join(lines) + "\n```"]
    for snapshot in terminal.snapshots:
        parts += ["While it ran, the last lines were:", f"```text\n{snapshot}\n```"]
    return "\n\n".join(parts)


def main() -> None:
    gymq = Path(sys.argv[1]).resolve()
    wanted = sys.argv[2:]
    port = free_port()
    endpoint = subprocess.Popen([gymq.parent / "python", HERE / "endpoint.py", str(port)])
    try:
        time.sleep(1)
        scenes = [scene for scene in SCENES if not wanted or any(word in scene.title for word in wanted)]
        played = [play(scene, f"http://127.0.0.1:{port}", gymq.parent) for scene in scenes]
    finally:
        endpoint.kill()
    about = (
        "# Terminal sessions\n\nThe first commands of a new user, recorded in tmux with an installed wheel by "
        f"`{shlex.join(['python', 'tools/terminal_sessions/record.py', 'GYMQ'])}`."
    )
    text = "\n\n".join([about, *played]) + "\n"
    if wanted:
        print(text)
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
