"""Shell completion: the script that `gymq --install-completion` writes, in a bash of its own."""

import shutil
import subprocess

import pytest

from .conftest import entry

# Arguments: the script, then the words on the line, of which the last is completed.
COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
_gymq
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """The command adds a line to the .bashrc of its user."""
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    return tmp_path_factory.mktemp("completion")


def install(file, shell):
    """Write the script in a process of its own: it changes the commands, as all of them are shown in it."""
    command = [*entry(), "--install-completion", "--shell", shell, "--output", str(file)]
    subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.fixture
def script(scripts):
    file = scripts / "gymq.bash"
    if not file.exists():
        install(file, "bash")
    return file


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["co"], {"collect", "config"}),
        (["collect", "--mod"], {"--model", "--model-url"}),
        (["dead-letters", ""], {"list", "show", "requeue", "drop"}),
        (["up", "--only", ""], {"agents", "models", "resources", "services"}),
        (["auth", "init", "--f"], {"--folder", "--force"}),
    ],
    ids=lambda values: " ".join(sorted(values)),  # the same in every process that runs tests
)
def test_bash_completes(script, words, offered):
    command = ["bash", "--norc", "-c", COMPLETE, "complete", str(script), "gymq", *words]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    found = set(shown.stdout.split())
    assert found >= offered
    assert all(word.startswith(words[-1]) for word in found)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_for_another_shell_can_be_read(scripts, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = scripts / f"gymq.{shell}"
    install(file, shell)
    subprocess.run([shell, "-n", str(file)], capture_output=True, check=True)
