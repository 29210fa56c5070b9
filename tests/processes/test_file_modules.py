"""Python files as modules."""

import sys
from pathlib import Path

import pytest

from gymq.processes import file_modules


def test_a_file_may_import_its_neighbours_which_hide_no_installed_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_a_file.py").write_text("NAME = 'neighbour'")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError")
    files = [tmp_path / name for name in ("one.py", "other.py")]
    for file in files:
        file.write_text("import colorsys\nfrom neighbour_of_a_file import NAME")
    modules = [file_modules.load(file) for file in files]
    assert [module.NAME for module in modules] == ["neighbour", "neighbour"]
    assert file_modules.load(files[0]) is modules[0]
    assert sys.path.count(str(tmp_path)) == 1
