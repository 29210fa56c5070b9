"""A run whose rollouts were all verified again remembers with which verifiers."""

from pathlib import Path

from gymq.data.run_changes import RecordedInstance, source_digest
from gymq.data.run_files import Manifest, RunFiles
from gymq.ext.scoring.actions import note_scored


def test_the_digests_of_the_verifiers_are_noted(tmp_path: Path) -> None:
    verifier = tmp_path / "my_env.py"
    verifier.write_text("second")
    files = RunFiles(tmp_path / "x.jsonl")
    files.write_manifest(
        Manifest(run="x", input="i", input_digest="", settings={}, config_digest="", num_rollouts=1, scored=["earlier"])
    )
    digest = source_digest(str(verifier))
    instances = {
        "env": RecordedInstance("resources", str(verifier), {}, digest),
        "mcqa": RecordedInstance("resources", "mcqa", {}),
        "agent": RecordedInstance("agents", "agent.py", {}, "of an agent"),
    }
    note_scored(files.output, instances)
    manifest = files.read_manifest()
    assert manifest is not None
    assert manifest.scored == [digest]


def test_a_file_without_a_run_is_left_alone(tmp_path: Path) -> None:
    note_scored(tmp_path / "theirs.jsonl", {})
    assert not list(tmp_path.iterdir())
