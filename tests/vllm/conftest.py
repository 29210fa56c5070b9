"""A real vLLM with a real, very small policy, on the CPU. Skipped where vLLM is not installed."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

from .tiny_policy import ON_CPU, POLICY, options

HERE = Path(__file__).parent

# Files whose tests stay in one process with `--dist loadgroup`; another file stays in one of its own.
TOGETHER = {
    "test_check_policy.py": "engine",
    "test_engine.py": "engine",
    "test_exact_prompts.py": "HTTP",
    "test_parallel.py": "engine",
    "test_pool.py": "pool",
    "test_sampling.py": "engine",
    "test_weights.py": "engine",
    "test_ray.py": "Ray",
    "test_serve.py": "HTTP",
    "test_urgent.py": "engine",
}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.xdist_group(TOGETHER.get(item.path.name, str(item.path))))
    if importlib.util.find_spec("vllm") is not None:
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="vLLM is not installed here; `make test-in NAME=vllm` installs it"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def model(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalVLLMModel]:
    """One engine for all tests that leave it alive. Its checkpoint has sampling settings of its own, which are off."""
    policy = Path(shutil.copytree(POLICY, tmp_path_factory.mktemp("policy") / "checkpoint"))
    (policy / "generation_config.json").write_text('{"temperature": 0.6, "top_k": 3, "max_new_tokens": 2}')
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ON_CPU.items():
            patch.setenv(name, value)
        worker = LocalVLLMModel(options(model=str(policy)), name="policy_model")
        await worker.start()
        yield worker
        await worker.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the policy that the test may change."""
    return Path(shutil.copytree(POLICY, tmp_path / "checkpoint"))
