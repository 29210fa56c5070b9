"""What a run knows of the versions of its verifiers' files, as manifest, output and file say."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gymq.config import record_instances
from gymq.data.run_changes import source_digest
from gymq.data.run_files import Manifest, RunFiles
from gymq.protocol.instances import Instance
from gymq.runs.older_rewards import agents_with_changed_verifier, older_rewards, rewards_of


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def instances(file: Path) -> list[Instance]:
    agents = {"one": file.stem, "other": "elsewhere"}
    return [
        Instance(file.stem, "resources", f"{file}:Letters"),
        Instance("elsewhere", "resources", "mcqa"),
        *(
            Instance(agent, "agents", "simple_agent", {"resources_server": {"name": of}})
            for agent, of in agents.items()
        ),
    ]


def written(**fields: object) -> RunFiles:
    """A run of ten rollouts, eight of them verified by `my_env.py`."""
    file = Path("my_env.py")
    file.write_text("first")
    files = RunFiles(Path("runs/x.jsonl"))
    files.output.parent.mkdir()
    results = [{"agent_ref": {"name": "one"}}] * 8 + [{"agent_ref": {"name": "other"}}] * 2
    files.output.write_text("".join(json.dumps(result) + "\n" for result in results))
    config = record_instances(instances(file))
    files.write_manifest(
        Manifest("r", "rows.jsonl", "0", {}, "0", 10, config, score_with=["--resources", "my_env.py"], **fields)  # type: ignore[arg-type]
    )
    return files


SCORE = "gymq score --rollouts runs/x.jsonl --output runs/x_scored.jsonl --resources my_env.py"


def test_rewards_are_older_than_a_file_that_changed_until_they_are_scored_with_it() -> None:
    files = written()
    assert list(older_rewards(files)) == []
    Path("my_env.py").write_text("second")
    assert list(older_rewards(files)) == [("8 rewards are older than my_env.py; this verifies them again:", SCORE)]
    Path("runs/x_scored.jsonl").touch()
    assert next(older_rewards(files)).command == f"{SCORE} --overwrite"
    manifest = files.read_manifest()
    assert manifest is not None
    files.write_manifest(replace(manifest, scored=[source_digest("my_env.py")]))
    assert list(older_rewards(files)) == []
    Path("my_env.py").write_text("third")
    assert str(next(older_rewards(files))).startswith("8 rewards are older than my_env.py")
    Path("my_env.py").unlink()
    assert list(older_rewards(files)) == []


def test_rewards_of_before_a_change_are_counted_though_the_run_went_on_with_the_file_of_today() -> None:
    files = written(older_rewards={"one": 1})
    assert list(older_rewards(files)) == [("1 reward is older than my_env.py; this verifies them again:", SCORE)]


def test_the_agents_of_a_changed_file_and_their_rewards_are_found() -> None:
    files = written()
    before = record_instances(instances(Path("my_env.py")))
    assert agents_with_changed_verifier(before, before) == []
    Path("my_env.py").write_text("second")
    assert agents_with_changed_verifier(before, record_instances(instances(Path("my_env.py")))) == ["one"]
    assert rewards_of(files.output, ["one", "other", "third"]) == {"one": 8, "other": 2, "third": 0}
    assert rewards_of(Path("nothing.jsonl"), ["one"]) == {"one": 0}
