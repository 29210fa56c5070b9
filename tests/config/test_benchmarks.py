"""Benchmarks in folders."""

from pathlib import Path

import pytest

from gymq.config import ConfigError
from gymq.config.benchmarks import benchmarks, find_benchmark


def test_of_two_with_the_same_name_the_first_counts(tmp_path, monkeypatch):
    for root in ("here", "there"):
        folder = tmp_path / root / "benchmarks" / "made_up"
        folder.mkdir(parents=True)
        for name in ("config.yaml", "config_fast.yaml", "notes.yaml"):
            (folder / name).touch()
    monkeypatch.chdir(tmp_path / "here")
    found = [(one.name, one.root) for one in benchmarks([tmp_path / "there"]) if one.name.startswith("made_up")]
    assert found == [("made_up", Path()), ("made_up/config_fast", Path())]
    assert find_benchmark("made_up").config == Path("benchmarks/made_up/config.yaml")


def test_what_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no benchmark is called made_up"):
        find_benchmark("made_up")
    with pytest.raises(ConfigError, match="expected a folder benchmarks/ in it"):
        find_benchmark("made_up", [tmp_path])
