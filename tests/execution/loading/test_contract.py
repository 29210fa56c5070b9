"""A class that cannot work as a worker is refused when it is loaded, with file, line and what would be right."""

import textwrap
from pathlib import Path

import pytest

import gymq
from gymq.execution.loading.contract import InvalidWorker, check_contract
from gymq.execution.loading.registry import WorkerNotFound, find_class, worker_names
from gymq.execution.loading.worker_source import find_worker
from gymq.protocol.instances import Kind
from gymq.testing import Harness
from gymq.testing.agent_harness import AgentHarness

# The body of a class derived from gymq.Resources, and what is said of it, at a line of the file.
REFUSED = {
    "pass": "3: Env has no verifier: define `async def verify(self, request)`, "
    "or `def verify_in_process(self, request)`",
    "async def open(self, row): ...": "3: Env has no verifier: define `async def verify(self, request)`",
    "async def verify(self): return 1.0": "4: Env.verify must take (self, request), but it takes (self)",
    "async def verify(self, request, state): return 1.0": "4: Env.verify must take (self, request), "
    "but it takes (self, request, state)",
    "async def open(self, row): ...\nasync def verify(self, request, state): return 1.0": "5: Env.verify must take "
    "(self, request), but it takes (self, request, state): the state is `request.state`",
    "def verify(self, request): return 1.0": "4: Env.verify must be `async`, or be called `verify_in_process`",
    "def open(self, row): ...\nasync def verify(self, request): return 1.0": "4: Env.open must be `async def open(",
    "def verify_in_process(self): return 1.0": "4: Env.verify_in_process must take (self, request)",
    "async def verify_in_process(self, request): return 1.0": "4: Env.verify_in_process must be `def`, without `async`",
    "def verify_in_process(self, request) -> str: return 1.0": "4: Env.verify_in_process returns str",
    "async def open(self, row): ...\nasync def reseed(self, row): ...\nasync def verify(self, request): return 1": "5: "
    "Env.reseed must take (self, state, row), but it takes (self, row)",
    "async def open(self): ...\nasync def verify(self, request): return 1.0": "4: Env.open must take (self, row)",
    "async def verify(self, request) -> str: return 'yes'": "4: Env.verify returns str, but it must return a "
    "gymq.Verdict",
    "async def verify(self, request) -> gymq.Verdict | None: ...": "4: Env.verify returns NoneType",
    "async def verify(self, request) -> 'dict[str, float]': ...": "4: Env.verify returns dict",
    "async def verify(self, request): yield 1.0": "4: Env.verify must return its result, but it holds a `yield`",
    "async def verify(self, request): return 1\ndef start(self): ...": "5: Env.start must be `async def start(self)`",
    "async def verify(self, request): return 1\n@gymq.tool\ndef look(self, state): ...": "5: Env.look takes `state`, "
    "but Env has no `open(self, row)` to create it",
    "async def verify(self, request): return 1\n@gymq.tool\ndef look(self, *places): ...": "5: Env.look takes "
    "`*places`",
    "async def verify(self, request): return 1\n@gymq.tool\ndef close(self): ...": "5: Env.close is a tool with a name",
    "from typing import Callable\nasync def verify(self, request): return 1\n@gymq.tool\n"
    "def look(self, at: Callable[[int], int]): ...": "6: Env.look has a parameter that no model can give",
}

ACCEPTED = [
    "async def verify(self, request): return 1.0",
    "async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> bool: return True",
    "def verify_in_process(self, request) -> float: return 1.0",
    "async def open(self, row): ...\nasync def verify(self, request): return 1.0",
    "async def verify(self, request, state=None) -> gymq.Verdict | float: return 1.0",
    "async def verify(self, *arguments) -> 'numpy.float32': ...",
    "@staticmethod\nasync def verify(request) -> int: return 1",
    "async def open(self, row): ...\nasync def verify(self, request) -> float: return 1.0\n"
    "@gymq.tool\nasync def look(self, state, place: str): ...",
]


def written(folder: Path, body: str, base: str = "gymq.Resources") -> str:
    file = folder / "env.py"
    file.write_text(f"import gymq\n\nclass Env({base}):\n{textwrap.indent(body, '    ')}\n")
    return str(file)


@pytest.mark.parametrize(("body", "said"), REFUSED.items())
def test_a_class_that_cannot_verify_is_refused_with_its_line(tmp_path, body, said):
    with pytest.raises(WorkerNotFound) as refused:
        find_class("resources", written(tmp_path, body))
    assert f"env.py:{said}" in str(refused.value)


def test_a_command_that_looks_for_any_kind_of_worker_says_what_is_wrong_with_the_class(tmp_path):
    with pytest.raises(WorkerNotFound, match=r"env\.py:3: Env has no verifier"):
        find_worker(written(tmp_path, "pass"))


@pytest.mark.parametrize("body", ACCEPTED)
def test_every_way_to_write_a_verifier_is_accepted(tmp_path, body):
    assert find_class("resources", written(tmp_path, body)).__name__ == "Env"


@pytest.mark.parametrize(
    ("base", "body", "said"),
    [
        ("gymq.Agent", "pass", "3: Env has neither `async def converse(self, rollout, session)` nor"),
        ("gymq.Agent", "async def run(self): ...", "4: Env.run must take (self, rollout), but it takes (self)"),
        ("gymq.Agent", "def converse(self, rollout, session): ...", "4: Env.converse must be `async def converse("),
        ("gymq.Model", "pass", "3: Env has no `async def respond(self, request)`"),
        ("gymq.Model", "async def respond(self, a, b): ...", "4: Env.respond must take (self, request)"),
    ],
)
def test_agents_and_models_are_checked_too(tmp_path, base, body, said):
    kind: Kind = "agents" if base == "gymq.Agent" else "models"
    with pytest.raises(WorkerNotFound) as refused:
        find_class(kind, written(tmp_path, body, base))
    assert f"env.py:{said}" in str(refused.value)


@pytest.mark.parametrize("kind", ["agents", "models", "resources"])
def test_all_shipped_workers_keep_the_contract(kind):
    found = worker_names(kind)
    assert found
    for name in found:
        check_contract(find_class(kind, name))


class NoVerifier(gymq.Resources[gymq.Row]):
    pass


class Right(gymq.Resources[gymq.Row]):
    async def verify(self, request):
        return True


class Silent(gymq.Agent):
    pass


class Mute(gymq.Model):
    pass


def test_a_model_that_cannot_answer_is_not_even_created():
    with pytest.raises(TypeError, match=r"abstract method '?respond"):
        Mute()  # type: ignore[abstract]


def test_a_harness_refuses_it_before_anything_runs():
    with pytest.raises(InvalidWorker, match=r"test_contract\.py:\d+: NoVerifier has no verifier"):
        Harness(NoVerifier)
    with pytest.raises(InvalidWorker, match="Silent has neither"):
        AgentHarness(Silent, Right, lambda params: {})
