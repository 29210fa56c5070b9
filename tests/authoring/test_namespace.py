"""`import gymq` is all that authors and notebooks need, and stays quick."""

import subprocess
import sys
from importlib.metadata import version

import gymq


def test_every_public_name_is_found():
    for name in gymq.__all__:
        assert getattr(gymq, name) is not None
    assert {"Environment", "Harness", "Judge", "TrainingRun"} <= set(gymq.__all__)


def test_an_environment_is_a_resources_class():
    assert gymq.Environment is gymq.Resources


def test_the_version_is_that_of_the_package():
    assert gymq.__version__ == version("gymq")


def test_importing_gymq_imports_nothing_else():
    code = "import sys; import gymq; print([name for name in sys.modules if name.startswith('gymq.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
