"""Workers are cheap to have: what is heavy is imported when it is needed."""

import subprocess
import sys
from pathlib import Path

WORKERS = Path(__file__).parents[2] / "workers"
MODULES = [
    ".".join(("gymq", "workers", *path.parts[-3:-1], "worker")) for path in sorted(WORKERS.glob("*/*/worker.py"))
]
HEAVY = {
    *(
        "aviary",
        "bs4",
        "datasets",
        "docker",
        "httpx2",
        "inspect_ai",
        "latex2sympy2_extended",
        "litellm",
        "math_verify",
        "minisweagent",
    ),
    *("nltk", "numpy", "openai", "pandas", "pyarrow", "rdkit", "ray", "reasoning_gym", "scipy", "sklearn", "sympy"),
    *("tavily", "textarena", "tiktoken", "torch", "trafilatura", "transformers", "verifiers", "vllm"),
}

# In a process of its own: says which packages importing all workers has brought.
PROGRAM = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_no_worker_imports_a_heavy_library_with_its_module():
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *MODULES], capture_output=True, text=True, check=True)
    imported = set(ran.stdout.split())
    assert {"gymq", "pydantic"} <= imported
    assert imported & HEAVY == set()


def test_a_worker_process_imports_no_web_client_and_no_configuration():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, "gymq.cluster.worker_process"], capture_output=True, text=True, check=True
    )
    imported = set(ran.stdout.split())
    assert {"gymq", "nats"} <= imported
    assert imported & {"aiohttp", "cyclopts", "omegaconf", "rich", "yaml"} == set()
