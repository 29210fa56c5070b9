"""What is installed is locked: every package by version and hash, in CI, in the image and from `make`."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements" / "locked.txt").read_text()
# In environments of their own: tests/vllm/requirements.txt, tests/hubs/requirements.txt, those of isolated workers.
# What reads logs of Inspect is not part of an image or of CI.
OF_THEIR_OWN = {"vllm", "verifiers", "verifiers-tasksets", "textarena", "litellm", "inspect"}
EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - OF_THEIR_OWN)

_spec = importlib.util.spec_from_file_location("for_extras", ROOT / "requirements" / "for_extras.py")
assert _spec
assert _spec.loader
for_extras = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(for_extras)


def entries() -> list[tuple[str, set[str], str]]:
    found: list[tuple[str, set[str], str]] = for_extras.blocks(LOCK)
    return found


def chosen(*extras: str) -> set[str]:
    found: set[str] = for_extras.needed(entries(), for_extras.direct(extras))
    return found


def test_every_entry_has_one_version_and_hashes() -> None:
    lines = LOCK.splitlines()
    packages = [line for line in lines if re.match(r"[a-z0-9]", line)]
    assert len(packages) > 200
    assert [line for line in packages if not re.fullmatch(r"[a-z0-9.-]+==[\w.+]+( ; [^\\]+)? \\", line)] == []
    assert [name for name, _, text in entries() if "--hash=sha256:" not in text] == []
    assert len(entries()) == len(packages)


def test_the_lock_names_no_index() -> None:
    words = re.compile(r"://|^\s*-|index-url|find-links|trusted-host")
    lines = [line for line in LOCK.splitlines() if not line.startswith("    --hash=sha256:")]
    assert [line for line in lines if words.search(line)] == []


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_an_extra_asks_for_is_locked_in_a_version_that_it_takes(extra: str) -> None:
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
    versions: dict[str, list[Version]] = {}
    for name, _, text in entries():
        found = re.match(r"\S+==(\S+)", text)
        assert found
        versions.setdefault(name, []).append(Version(found[1]))
    for requirement in map(Requirement, asked):
        if requirement.name != "gymq":
            locked = versions[canonicalize_name(requirement.name)]
            assert all(requirement.specifier.contains(version) for version in locked), str(requirement)
    assert chosen(extra) <= set(versions)


def installed_needs(name: str, extras: frozenset[str]) -> set[tuple[str, frozenset[str]]]:
    """What an installed package needs here, with its extras."""
    found = set()
    for line in importlib.metadata.requires(name) or ():
        requirement = Requirement(line)
        wanted = [{"extra": extra} for extra in (*extras, "")]
        if requirement.marker is None or any(requirement.marker.evaluate(one) for one in wanted):
            found.add((str(canonicalize_name(requirement.name)), frozenset(requirement.extras)))
    return found


@pytest.mark.parametrize("extras", [("resources",), ("resources", "observability"), ("dev",)], ids="+".join)
def test_the_part_of_the_lock_for_some_extras_has_all_that_they_need(extras: tuple[str, ...]) -> None:
    waiting = {("gymq", frozenset(extras))}
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        package = waiting.pop()
        done.add(package)
        waiting |= installed_needs(*package) - done
    names = {name for name, _ in done} - {"gymq"}
    assert len(names) > 20
    assert names - chosen(*extras) == set()


def test_the_part_for_an_image_leaves_the_rest_out() -> None:
    assert not {"pytest", "mypy", "llama-index-core", "wandb"} & chosen("resources", "observability")


@pytest.mark.parametrize(("extra", "says"), [("nope", "'nope' is unknown"), ("verifiers", "verifiers missing")])
def test_what_is_not_locked_is_refused(extra: str, says: str) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "requirements" / "for_extras.py", extra]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert says in ran.stderr


def test_base_dependencies_have_upper_bounds() -> None:
    unbound = [line for line in PROJECT["dependencies"] if not re.search(r"<|==", line.partition(";")[0])]
    assert unbound == []


@pytest.mark.parametrize(("file", "count"), [("Makefile", 4), ("Dockerfile", 3)])
def test_nothing_is_installed_beside_the_lock(file: str, count: int) -> None:
    """Each `pip install` of gymq's own environment checks hashes, or installs gymq alone."""
    text = (ROOT / file).read_text().replace("\\\n", " ")
    commands = [command.strip() for line in text.splitlines() for command in line.split("&&")]
    installs = [
        command
        for command in commands
        if ("$(call install_locked," in command or "pip install" in command)
        and not command.startswith(("install_locked =", "$(VENV_LOCK)", "#"))
    ]
    assert len(installs) == count
    for command in installs:
        gymq_alone = command.endswith(" .") and "--no-build-isolation" in command
        assert "--require-hashes" in command or "$(call install_locked," in command or gymq_alone, command


def test_the_wheel_has_the_license(tmp_path: Path) -> None:
    hatchling = pytest.importorskip("hatchling", reason="run `make test`: it installs what builds the wheel")
    assert hatchling
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        (found,) = [name for name in opened.namelist() if name.endswith("licenses/LICENSE")]
        text = opened.read(found).decode()
    assert text == (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_tags_of_actions_are_replaced_by_their_commits(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=x", "-c", "user.email=x@x")
        command = ["git", "-C", str(tmp_path / "hub" / "actions" / "checkout"), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "hub" / "actions" / "checkout").mkdir(parents=True)
    git("init")
    git("commit", "--allow-empty", "-m", "first")
    git("tag", "-a", "v4", "-m", "annotated")
    commit = git("rev-parse", "HEAD")
    workflows = tmp_path / "github" / "workflows"
    workflows.mkdir(parents=True)
    shutil.copy(ROOT / ".github" / "pin-actions", workflows.parent)
    (workflows / "ci.yml").write_text("steps:\n  - uses: actions/checkout@v4\n  - run: make\n")
    hub = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_VALUE_0": "https://github.com/"}
    hub["GIT_CONFIG_KEY_0"] = f"url.file://{tmp_path}/hub/.insteadOf"
    subprocess.run([workflows.parent / "pin-actions"], check=True, env=os.environ | hub)
    pinned = f"steps:\n  - uses: actions/checkout@{commit} # v4\n  - run: make\n"
    assert (workflows / "ci.yml").read_text() == pinned
    (workflows / "ci.yml").write_text("steps:\n  - uses: actions/checkout@v5\n")
    refused = subprocess.run([workflows.parent / "pin-actions"], env=os.environ | hub, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "actions/checkout has no tag v5" in refused.stderr
