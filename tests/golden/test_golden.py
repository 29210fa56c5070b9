"""Golden files: messages, subjects, result files, statistics and help, compared with their record beside this test.

A difference is a change that other programs, stored runs or scripts notice. `make golden` records one that is wanted;
review the diff. A message whose meaning changes gets a new version in its tag.
"""

import io
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cyclopts
import msgspec
import pytest
from rich.console import Console

from gymq.bus import Bus, streams
from gymq.bus.jetstream import JetStream
from gymq.cli import all_commands, make_app
from gymq.cluster.server import EmbeddedServer
from gymq.data.jsonl import JsonlFile
from gymq.data.materialise import Materialisation, MaterialiseOptions
from gymq.data.run_files import Manifest, ReportFiles, RunFiles, failure_row, output_row, refused_row
from gymq.protocol import journal_messages, messages, replica_messages, subjects
from gymq.protocol.messages import Failure, FailureClass, Message, Stage, Unresolved, VerifiedRollout
from gymq.stats.files import read_statistics
from gymq.stats.outcome_feed import add_outcome
from gymq.stats.running import RunningProfile

HERE = Path(__file__).parent
WIDTH = 100  # columns of the help


def check(name: str, found: str) -> None:
    """Compare a text with a golden file; `make golden` writes the file first."""
    path = HERE / name
    if os.environ.get("GYMQ_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert found == path.read_text(), f"{name} has changed; if that is wanted, write it with `make golden`"


def as_lines(document: dict[str, Any]) -> str:
    """Return a JSON object of objects with one line for each inner field, so that a diff names what has changed."""
    sections = []
    for name, fields in document.items():
        lines = [f"    {json.dumps(field)}: {json.dumps(value, sort_keys=True)}" for field, value in fields.items()]
        inner = ",\n".join(lines)
        sections.append(f"  {json.dumps(name)}: {{\n{inner}\n  }}" if lines else f"  {json.dumps(name)}: {{}}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def schemas(*types: Any) -> list[dict[str, Any]]:
    """Return the JSON schemas of types without the names and docstrings of classes, which do not travel."""
    found, parts = msgspec.json.schema_components(types)

    def plain(node: Any) -> Any:
        if isinstance(node, list):
            return [plain(part) for part in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return plain(parts[node["$ref"].rpartition("/")[2]])
        return {key: plain(value) for key, value in node.items() if key not in ("title", "description")}

    return [plain(schema) for schema in found]


def fields_of(schema: dict[str, Any]) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    return {
        name: {"required": True, **field} if name in required else field
        for name, field in sorted(schema["properties"].items())
    }


def message_types(base: type[Message] = Message) -> Iterator[type[Message]]:
    for kind in base.__subclasses__():
        if kind.__module__ in {module.__name__ for module in (messages, journal_messages, replica_messages)}:
            if not kind.__subclasses__():
                yield kind
            yield from message_types(kind)


def test_the_tags_and_fields_of_messages_are_as_recorded() -> None:
    tags = {schema["properties"]["type"]["enum"][0]: fields_of(schema) for schema in schemas(*message_types())}
    check("messages.json", as_lines(dict(sorted(tags.items()))))


class Recorded(JetStream):
    """JetStream that notes the bodies of requests to its API."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.asked: dict[str, Any] = {}

    async def api(self, subject: str, body: Any = None, *, timeout_s: float = 10.0) -> dict[str, Any]:
        if body is not None:
            self.asked[subject] = body
        return await super().api(subject, body, timeout_s=timeout_s)


async def test_subjects_streams_and_consumers_are_as_recorded(own_server: EmbeddedServer) -> None:
    table = {row.pattern: {"stream": row.stream, "group": row.group} for row in subjects.SUBJECTS}
    bus = await Bus.connect(own_server.url, role="test", name="golden")
    recorded = Recorded(bus)
    await streams.ensure(recorded, ["some_agent"])
    await bus.close()
    made = {subject: body.get("config", body) for subject, body in sorted(recorded.asked.items())}
    check("subjects.json", as_lines({"subjects": table, **made}))


def outcomes() -> list[VerifiedRollout | Failure | Unresolved]:
    """Return every kind of outcome: three tasks with four rollouts each, two of them without a reward."""
    rewards = {0: [1.0, 0.0, 1.0, 0.5], 1: [0.0, 0.0, 0.25, 1.0], 2: [1.0, 1.0]}
    made: list[VerifiedRollout | Failure | Unresolved] = []
    for task, of_task in rewards.items():
        for rollout, reward in enumerate(of_task):
            verdict = {"extracted_answer": f"a{round(reward)}", "length": 10 * task + rollout, "solved": reward == 1}
            response = {"output": [], "usage": {"input_tokens": 7, "output_tokens": rollout + 1}}
            versions = ["v1", "v2"][: task % 3]
            made.append(VerifiedRollout(**place(task, rollout), response=response, reward=reward, verdict=verdict,
                                policy_versions=versions, attempt=int(task == 1)))  # fmt: skip
    failed: dict[str, Any] = {"failure_class": FailureClass.MODEL_FAILED, "message": "no answer"}
    made.append(Failure(**place(2, 2), **failed, stage=Stage.MODEL, curable=True))
    unverified: dict[str, Any] = {"failure_class": FailureClass.JUDGE_FAILED, "message": "no judge"}
    made.append(Unresolved(**place(2, 3), **unverified, response={"output": []}))
    return made


def place(task: int, rollout: int) -> dict[str, Any]:
    row = {"responses_create_params": {"input": "?"}, "_ng_task_index": task, "_ng_rollout_index": rollout,
           "agent_ref": {"name": "some_agent"}}  # fmt: skip
    return {
        "run": "r",
        "task_index": task,
        "rollout_index": rollout,
        "agent": "some_agent",
        "row": json.dumps(row).encode(),
        "num_rollouts": 4,
        "duration_s": 1.0 + task + rollout,
    }


def write_run(folder: Path) -> RunFiles:
    """Write the files of a run with these outcomes."""
    files = RunFiles(folder / "rollouts.jsonl")
    options = MaterialiseOptions(agent_name="some_agent", num_repeats=4, num_repeats_add_seed=True)
    lines = [json.dumps({"responses_create_params": {"input": "?"}, "answer": number}) for number in range(3)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    with Materialisation(options) as rows:
        made = [row.json for row in rows.rows(JsonlFile(folder / "rows.jsonl"))]
    files.materialised.write_bytes(b"\n".join(made) + b"\n")
    finished = [output_row(outcome) for outcome in outcomes() if isinstance(outcome, VerifiedRollout)]
    files.output.write_bytes(b"\n".join(finished) + b"\n")
    failed = [failure_row(outcome, 9) for outcome in outcomes() if not isinstance(outcome, VerifiedRollout)]
    files.failures.write_bytes(b"\n".join([*failed, refused_row("no object")]) + b"\n")
    files.write_manifest(Manifest("r", "rows.jsonl", "0", {}, "0", 12))
    read_statistics(files, report=ReportFiles.beside(files.output), allow_partial=True)
    return files


def test_the_names_and_keys_of_result_files_are_as_recorded(tmp_path: Path) -> None:
    files = write_run(tmp_path)
    keys: dict[str, dict[str, Any]] = {}
    for path in filter(Path.exists, files.all()):
        read = [json.loads(line) for line in path.read_bytes().splitlines()] if path.suffix == ".jsonl" else []
        read = read or json.loads(path.read_bytes())
        rows = read if isinstance(read, list) else [read]
        found = sorted({key for row in rows for key in row})
        keys[path.name] = {key: sum(key in row for row in rows) for key in found}
    keys[files.manifest.name] = fields_of(schemas(Manifest)[0])
    check("files.json", as_lines(keys))


def rounded(value: Any) -> Any:
    """Return statistics with nine digits: more may differ between processors."""
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def test_the_statistics_of_known_outcomes_are_as_recorded(tmp_path: Path) -> None:
    live = RunningProfile()
    for sequence, outcome in enumerate(outcomes(), 1):
        add_outcome(live, sequence, outcome)
    snapshot = msgspec.to_builtins(live.snapshot(range(1, 5)), str_keys=True)
    files = write_run(tmp_path)
    groups = [json.loads(line) for line in files.report.reward_profiling.read_bytes().splitlines()]
    agents = json.loads(files.report.agent_metrics.read_bytes())
    document = {
        "live": snapshot["agents"]["some_agent"],
        **{f"files: task {number}": group for number, group in enumerate(groups)},
        "files: agent": agents[0],
    }
    check("statistics.json", as_lines(rounded(document)))


def help_of(app: cyclopts.App, name: str) -> Iterator[str]:
    """Yield the help of a command and of the commands below it, as a terminal of `WIDTH` columns shows it."""
    tokens = name.split()
    shown = io.StringIO()
    app.help_print(tokens, console=Console(file=shown, width=WIDTH, color_system=None))
    yield "\n".join(line.rstrip() for line in f"$ gymq {name}".splitlines() + shown.getvalue().splitlines())
    command = app
    for token in tokens:
        command = command[token]
    for below in command if tokens else ():
        if not below.startswith("-") and command[below].show:
            yield from help_of(app, f"{name} {below}")


@pytest.mark.parametrize("name", ["", *all_commands()])
def test_the_help_is_as_recorded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GYMQ_NATS", raising=False)
    texts = help_of(make_app(name or None), name)
    check(f"help/{name or 'gymq'}.txt", "\n\n".join(text.strip() for text in texts) + "\n")
