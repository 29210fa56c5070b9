"""Paths in a configuration file are relative to that file, else to the current folder."""

from pathlib import Path

import pytest

from gymq.config import load
from gymq.config.sources import origin

EXAM = """
exam:
  resources_servers:
    ./env/worker.py:Exam:
      entrypoint: x
      domain: other
      judge_prompt_template_fpath: prompts/judge.txt
      output_fpath: not/there.txt
      files: [prompts/judge.txt, data, not/there.txt]
      datasets:
        - {name: e, type: example, jsonl_fpath: data/example.jsonl}
"""


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration and what it names, seen from the folder above."""
    for name in ("env/worker.py", "prompts/judge.txt", "data/example.jsonl"):
        file = tmp_path / "author" / name
        file.parent.mkdir(parents=True)
        file.write_text("")
    (tmp_path / "author" / "config.yaml").write_text(EXAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "author"


def only(config):
    (instance,) = config.instances
    return instance


@pytest.mark.usefixtures("author")
def test_paths_of_a_file_are_looked_for_beside_it():
    instance = only(load(["author/config.yaml"], env_yaml=None))
    assert instance.implementation == "author/env/worker.py:Exam"
    assert instance.options["judge_prompt_template_fpath"] == "author/prompts/judge.txt"
    assert instance.options["datasets"][0]["jsonl_fpath"] == "author/data/example.jsonl"
    assert instance.options["output_fpath"] == "not/there.txt"
    assert instance.options["files"] == ["author/prompts/judge.txt", "author/data", "not/there.txt"]


def test_from_elsewhere_they_are_absolute(author, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    instance = only(load([author / "config.yaml"], env_yaml=None))
    assert instance.implementation == f"{author}/env/worker.py:Exam"
    assert instance.options["judge_prompt_template_fpath"] == str(author / "prompts" / "judge.txt")


def test_in_the_folder_of_the_file_they_stay_as_written(author, monkeypatch):
    monkeypatch.chdir(author)
    instance = only(load(["config.yaml"], env_yaml=None))
    assert instance.implementation == "./env/worker.py:Exam"
    assert instance.options["judge_prompt_template_fpath"] == "prompts/judge.txt"


def test_what_is_not_beside_the_file_is_relative_to_the_current_folder(author, tmp_path):
    (author / "env").rename(tmp_path / "env")
    assert only(load(["author/config.yaml"], env_yaml=None)).implementation == "./env/worker.py:Exam"


def test_a_file_beside_the_configuration_comes_before_one_here(author, tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "worker.py").write_text("")
    assert only(load(["author/config.yaml"], env_yaml=None)).implementation == "author/env/worker.py:Exam"


def test_files_that_name_one_worker_differently_are_merged(author, tmp_path):
    (tmp_path / "more.yaml").write_text("exam: {resources_servers: {'author/env/worker.py:Exam': {depth: 3}}}")
    config = load(["author/config.yaml", "more.yaml"], ["exam.width=4"], env_yaml=None)
    assert (only(config).options["depth"], only(config).options["width"]) == (3, 4)


@pytest.mark.usefixtures("author")
def test_messages_still_know_the_lines():
    config = load(["author/config.yaml"], env_yaml=None)
    keys = ("exam", "resources_servers", only(config).implementation, "domain")
    assert origin(config.sources, keys) == "author/config.yaml:6"


def test_a_file_includes_what_lies_beside_it(author):
    (author / "top.yaml").write_text("config_paths: [config.yaml]")
    assert only(load(["author/top.yaml"], env_yaml=None)).name == "exam"
