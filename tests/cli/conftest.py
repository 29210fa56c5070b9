"""One cluster with one finished run for all commands that read, and a way to call commands as a person does.

The run is made for known statistics: rollouts with an even index answer right, those of the last task have no verdict.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gymq.cli import main

from .endpoint import Endpoint, running_endpoint

RUN_STEM = "letters"
NUM_REPEATS = 4
QUESTIONS = ("first letter", "second letter")

LETTERS = '''
import gymq


class Row(gymq.Row):
    answer: str


class Letters(gymq.Resources[Row]):
    """Reward 1 if the reply is the answer; no verdict for an answer that is a question mark."""

    @gymq.tool
    async def spell(self, word: str) -> str:
        """Spell a word."""
        return "-".join(word)

    async def verify(self, request):
        if request.row.answer == "?":
            asleep = gymq.JudgeFailed("the judge is asleep")
            asleep.retryable = False  # so that no test waits for the retries
            raise asleep
        text = request.reply_text
        return gymq.Verdict(float(text == request.row.answer), extracted_answer=text, length=len(text))
'''

POLICY = '''
import gymq
from gymq.testing import function_call, reply


class Policy(gymq.Model):
    """Spells a word, then answers: right where the rollout's index is even."""

    def oddities(self):
        return {"replies with another `usage` than specified": 3}

    async def respond(self, request):
        if request.params["input"][-1].get("type") != "function_call_output":
            made = reply(function_call("spell", {"word": "abc"}, call_id="call_7"))
        else:
            index = int(request.rollout.split("/")[2])
            reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I think."}]}
            made = reply(reasoning, "A" if index % 2 == 0 else "B")
            made["output"][-1] |= {
                "prompt_token_ids": [1, 2, 3],
                "generation_token_ids": [4, 5],
                "generation_log_probs": [-0.5, -1.25],
            }
        usage = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
        return made | {"usage": usage}
'''


@dataclass(frozen=True)
class Called:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Called]


@pytest.fixture
def gymq(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """`gymq("status", "--json")`: a command, run in this process."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("GYMQ_NATS", raising=False)

    def call(*arguments: object) -> Called:
        monkeypatch.setattr(sys, "argv", ["gymq", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capfd.readouterr()
        assert "Traceback" not in printed.err
        return Called(int(ended.value.code or 0), printed.out, printed.err)

    return call


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that commands are given in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with running_endpoint() as endpoint:
        yield endpoint


@dataclass(frozen=True)
class Finished:
    """A folder where a cluster runs and a run is finished."""

    folder: Path
    config: Path
    run: str

    def file(self, suffix: str = "") -> Path:
        return self.folder / f"{RUN_STEM}{suffix}.jsonl"


# Of each module, since a cluster that waits until the last of all tests costs more than starting one.
@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("cluster")
    config = write_workers(folder)
    rows = [row(question, "A") for question in QUESTIONS] + [row("no letter", "?")]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    with running_cluster(folder, config):
        command = ["collect", "-c", config, "--rows", "rows.jsonl", "-o", f"{RUN_STEM}.jsonl"]
        collected = subprocess.run(
            [*entry(), *map(str, command), "--num-repeats", str(NUM_REPEATS)],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        assert collected.returncode == 3, collected.stderr
        manifest = json.loads((folder / f"{RUN_STEM}_run.json").read_text())
        yield Finished(folder, config, manifest["run"])


@pytest.fixture
def cluster(finished_run: Finished, monkeypatch: pytest.MonkeyPatch) -> Finished:
    """The finished run, with its folder as the current one."""
    monkeypatch.chdir(finished_run.folder)
    return finished_run


def row(question: str, answer: str) -> dict[str, Any]:
    return {"responses_create_params": {"input": [{"role": "user", "content": question}]}, "answer": answer}


def write_environment(folder: Path, **params: Any) -> None:
    """A verifier as a file, and a row for it with these parameters."""
    (folder / "letters.py").write_text(LETTERS)
    content = row("first letter", "A")
    content["responses_create_params"] |= params
    (folder / "rows.jsonl").write_text(json.dumps(content) + "\n")


def write_workers(folder: Path) -> Path:
    """The workers as files, and a configuration of them."""
    (folder / "letters.py").write_text(LETTERS)
    (folder / "policy.py").write_text(POLICY)
    config = {
        "letters": {"resources_servers": {str(folder / "letters.py"): {"entrypoint": "x", "domain": "other"}}},
        "letters_agent": {
            "responses_api_agents": {
                "simple_agent": {
                    "entrypoint": "worker.py",
                    "resources_server": {"type": "resources_servers", "name": "letters"},
                    "model_server": {"type": "responses_api_models", "name": "policy_model"},
                }
            }
        },
        "policy_model": {"responses_api_models": {str(folder / "policy.py"): {"entrypoint": "x"}}},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    return path


@contextlib.contextmanager
def running_cluster(folder: Path, config: Path) -> Iterator[None]:
    """`gymq up` in a folder while the block runs."""
    process = subprocess.Popen(
        [*entry(), "up", "-c", str(config)], cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        assert process.stdout is not None
        assert "workers in" in process.stdout.readline()
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=600)


def entry() -> list[str]:
    """The command as another process runs it."""
    return [sys.executable, "-c", "from gymq.cli import main; main()"]
