"""A type checker finds nothing wrong with workers as the documents show them, and knows the type of their options."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OPTIONS = """
import gymq
from gymq.judge import JudgeOptions


class Digits(gymq.Resources[gymq.Row]):
    class Options(gymq.WorkerOptions):
        digits: int = 3

    def verify_in_process(self, request: gymq.VerifyRequest[gymq.Row]) -> float:
        reveal_type(self.options)
        return float(self.options.digits)


class Judged(gymq.Resources[gymq.Row, int]):
    Options = JudgeOptions

    async def close(self, state: int) -> None: ...

    async def open(self, row: gymq.Row) -> int:
        return 1

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, int]) -> gymq.Verdict:
        reveal_type(self.options)
        reveal_type(request.state)
        return gymq.Verdict(1.0)


class Plain(gymq.Agent):
    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        reveal_type(self.options)
"""


def mypy(*files: Path) -> subprocess.CompletedProcess[str]:
    cache = ROOT / ".mypy_cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, cwd=files[0].parent, timeout=600)


def blocks(document: Path, base: str) -> list[str]:
    found = re.findall(r"```python[^\n]*\n(.*?)```", document.read_text(), re.DOTALL)
    return [block for block in found if f"({base}" in block]


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What mypy says of all of them at once, since each start takes seconds."""
    folder = tmp_path_factory.mktemp("checked")
    documents = [ROOT / "docs" / f"{name}.md" for name in ("authoring", "tools", "heavy_verifiers", "judges")]
    shown = [block for document in documents for block in blocks(document, "gymq.Resources")]
    sources = [*blocks(ROOT / "README.md", "gymq."), *shown, OPTIONS]
    files = [folder / f"worker_{number}.py" for number in range(len(sources))]
    for file, source in zip(files, sources, strict=True):
        file.write_text(source)
    return len(sources), mypy(*files)


def test_workers_of_the_documents_are_typed_strictly(checked):
    count, result = checked
    assert count >= 5
    assert result.returncode == 0, result.stdout


def test_options_and_state_have_the_types_of_the_class(checked):
    _, result = checked
    revealed = re.findall(r'Revealed type is "([^"]+)"', result.stdout)
    names = [re.sub(r"^worker_\d+\.", "", name) for name in revealed]
    options = ["Digits.Options", "gymq.judge.options.JudgeOptions"]
    assert names == [*options, "int | None", "gymq.agent.options.AgentOptions"]
