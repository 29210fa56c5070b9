"""`gymq list benchmarks`: what each needs, what the needs mean, and why some cannot run here."""

from pathlib import Path

import pytest
from rich.console import Console

from gymq.config.benchmarks import Benchmark
from gymq.ext.workbench import listing as listed
from gymq.ext.workbench.listing import BenchmarkFacts, print_benchmarks

FACTS = {
    "aime": BenchmarkFacts("aime", "math_with_judge", "simple_agent", 32, ["judge", "rows"]),
    "gpqa": BenchmarkFacts("gpqa", "mcqa", "simple_agent", 8, ["rows"]),
    "search": BenchmarkFacts("search", problem="a.b.tavily_api_key: cannot be resolved (/some/file.yaml:3)"),
}


@pytest.mark.parametrize("width", [80, 120])
def test_needs_are_explained_and_what_cannot_run_is_apart(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Benchmark(name, Path(), Path()) for name in FACTS]
    monkeypatch.setattr(listed, "benchmarks", lambda search: found)
    monkeypatch.setattr(listed, "benchmark_facts", lambda benchmark: FACTS[benchmark.name])
    print_benchmarks([], Console(width=width), as_json=False)
    runnable, _, others = capsys.readouterr().out.partition("cannot run here")
    lines = [line.split() for line in runnable.splitlines()]
    assert ["aime", "math_with_judge", "32", "judge,", "rows"] in lines
    assert ["gpqa", "mcqa", "8", "rows"] in lines
    assert "\njudge: a model that judges answers: --judge-url" in runnable
    assert "\nrows: they are not here yet; `gymq collect --benchmark NAME`" in runnable
    assert "sandbox:" not in runnable  # none of these needs one
    assert [line.split() for line in others.splitlines()][-1] == [
        "search",
        *["tavily_api_key:", "cannot", "be", "resolved"],
    ]
