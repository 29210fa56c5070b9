"""What a worker process holds of the person who started it: named variables, and nothing that others can read."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pydantic
import pytest

from gymq.authoring import WorkerOptions
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster, Deployment
from gymq.cluster.process_spec import ProcessSpec
from gymq.errors import UsageError
from gymq.processes import KillableProcesses
from gymq.processes.passed_environment import passed
from gymq.protocol.instances import Instance
from gymq.protocol.subjects import token

WORKER = """
import ctypes, json, os
import gymq

class Telling(gymq.Resources[gymq.Row]):
    class Options(gymq.WorkerOptions):
        file: str

    async def start(self):
        with open(self.options.file, "w") as file:
            json.dump({"environment": dict(os.environ), "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)}, file)

    async def verify(self, request):
        return gymq.Verdict(0.0)
"""
GIVEN = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LC_ALL": "C.UTF-8",
    "https_proxy": "http://proxy",
    "NO_PROXY": "localhost",
    "SSL_CERT_FILE": "/ca.pem",
    "REQUESTS_CA_BUNDLE": "/ca.pem",
    "NODE_EXTRA_CA_CERTS": "/ca.pem",
    "PYTHONPATH": "/x",
    "OTEL_TRACES_EXPORTER": "otlp",
}
SECRET = {
    "OPENAI_API_KEY": "sk-1",
    "ANTHROPIC_API_KEY": "sk-2",
    "AWS_SECRET_ACCESS_KEY": "aws",
    "WANDB_API_KEY": "w",
    "GITHUB_TOKEN": "gh",
    "SSH_AUTH_SOCK": "/tmp/ssh",
    "GYMQ_AUTH": "auth",
    "GYMQ_NATS": "nats://u:p@h",
    "GYMQ_MODEL_API_KEY": "m",
    "HF_TOKEN": "hf",
}
INSTALLERS = {
    "npm_config_cafile": "/ca.pem",
    "NPM_CONFIG_REGISTRY": "https://packages/npm",
    "PIP_INDEX_URL": "https://packages/pypi",
    "PIP_CERT": "/ca.pem",
    "UV_INDEX_URL": "https://packages/pypi",
    "UV_NATIVE_TLS": "1",
}
SECRETS_OF_INSTALLERS = {
    "npm_config__auth": "bWU6c2VjcmV0",
    "npm_config_//packages/:_authToken": "npm_1",
    "UV_INDEX_MINE_PASSWORD": "p",
    "UV_PUBLISH_TOKEN": "pypi-1",
}


@pytest.mark.parametrize("role", ["agent", "resources", "services"])
def test_no_worker_is_given_the_keys_of_a_person(role: str):
    assert passed(role, GIVEN | SECRET | {"CUDA_VISIBLE_DEVICES": "0"}) == GIVEN


@pytest.mark.parametrize(("role", "given"), [("agent", INSTALLERS), ("resources", {}), ("model", {}), ("services", {})])
def test_agents_which_install_harnesses_are_given_the_settings_of_npm_and_pip(role: str, given: dict[str, str]):
    assert passed(role, GIVEN | SECRETS_OF_INSTALLERS | INSTALLERS) == GIVEN | given


def test_models_are_given_what_engines_need():
    engine = {"CUDA_VISIBLE_DEVICES": "0", "VLLM_USE_V1": "1", "NCCL_DEBUG": "INFO", "HF_TOKEN": "hf"}
    assert passed("model", GIVEN | SECRET | engine) == GIVEN | engine


def test_an_instance_is_given_what_it_asks_for():
    assert passed("resources", GIVEN | SECRET, ["WANDB_API_KEY"]) == GIVEN | {"WANDB_API_KEY": "w"}
    with pytest.raises(LookupError, match="MISSING"):
        passed("resources", GIVEN, ["MISSING"])


@pytest.mark.parametrize("name", ["GYMQ_AUTH", "GYMQ_NATS", "", "A=B", "A\0", "A B", "É"])
def test_what_cannot_be_passed_is_refused(name: str):
    with pytest.raises(pydantic.ValidationError):
        WorkerOptions(pass_env=[name])


def instance(folder: Path, name: str, **options: object) -> Instance:
    (folder / "telling.py").write_text(WORKER)
    options = {"file": str(folder / f"{name}.json"), **options}
    return Instance(token(name, "instance"), "resources", f"{folder / 'telling.py'}:Telling", options)


async def test_a_process_has_what_is_named_and_shows_its_memory_to_nobody(shared_url, tmp_path, monkeypatch):
    for name, value in {**SECRET, "LC_TELEPHONE": "C.UTF-8", "ASKED_FOR": "yes"}.items():
        if name != "GYMQ_AUTH":
            monkeypatch.setenv(name, value)
    instances = [instance(tmp_path, "plain"), instance(tmp_path, "asking", pass_env=["ASKED_FOR"])]
    async with Cluster(
        instances, folder=tmp_path / "cluster", deployment=Deployment(shared_url, services=False)
    ) as cluster:
        assert sorted(child.name for child in cluster.children) == ["asking-0", "resources"]
    logs = tmp_path / "cluster" / "logs"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (logs, *logs.iterdir())}
    assert modes == {"logs": 0o700, "asking-0.log": 0o600, "resources.log": 0o600}
    plain, asking = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("plain", "asking"))
    assert plain["environment"]["LC_TELEPHONE"] == asking["environment"]["LC_TELEPHONE"] == "C.UTF-8"
    assert not SECRET.keys() & (plain["environment"].keys() | asking["environment"].keys())
    assert "ASKED_FOR" not in plain["environment"]
    assert asking["environment"]["ASKED_FOR"] == "yes"
    if sys.platform == "linux":
        assert plain["dumpable"] == asking["dumpable"] == 0


async def test_the_password_of_a_proxy_is_in_no_log(shared_url, tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:pa55%40word@proxy:3128")
    code = 'import logging, os\nlogging.getLogger("x").warning("%s; pa55@word; me", os.environ["HTTPS_PROXY"])'
    (tmp_path / "told.py").write_text(
        WORKER.replace("async def start(self):\n", f"async def start(self):\n{indented(code)}")
    )
    found = instance(tmp_path, "plain")
    told = Instance(found.name, "resources", f"{tmp_path / 'told.py'}:Telling", found.options)
    async with Cluster([told], folder=tmp_path / "cluster", deployment=Deployment(shared_url, services=False)):
        pass
    log = (tmp_path / "cluster" / "logs" / "resources.log").read_text()
    assert "http://***@proxy:3128; ***; me" in log


def indented(code: str) -> str:
    return textwrap.indent(f"{code}\n", " " * 8)


async def test_a_variable_that_is_asked_for_and_not_there_is_a_sentence(shared_url, tmp_path, monkeypatch):
    monkeypatch.delenv("MISSING", raising=False)
    spec = ProcessSpec(shared_url, "resources", [instance(tmp_path, "asking", pass_env=["MISSING"])])
    with pytest.raises(UsageError, match="asking: pass_env names MISSING, which is not set here"):
        await Child("asking", spec, None, tmp_path).start()


def dumpable() -> int:
    return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hides the memory of a process")
async def test_processes_that_compute_verdicts_are_hidden_too():
    processes = KillableProcesses(max_workers=1)
    try:
        assert await processes.run(120.0, dumpable) == 0
    finally:
        processes.close()


# What a program of `process` isolation reads of its worker: with `hide` as a worker is, without as it was.
WORKER_WITH_A_SANDBOX = """
import asyncio, os, sys
from gymq.processes import memory
from gymq.sandbox import Limits, LocalSandbox, Program

PROGRAM = '''
import os
pid = {pid}
for name in ("environ", "mem", "maps", "fd", "cwd"):
    path = f"/proc/{{pid}}/{{name}}"
    try:
        look = {{"fd": os.listdir, "cwd": os.readlink}}.get(name, lambda path: open(path, "rb"))
        print(name, bool(look(path)))
    except OSError as error:
        print(name, type(error).__name__)
'''

async def main():
    if sys.argv[1] == "hidden":
        memory.hide_memory()
    sandbox = LocalSandbox(isolation="process", python=sys.argv[2])
    await sandbox.start()
    argv = (sandbox.python, "-I", "-c", PROGRAM.format(pid=os.getpid()))
    print((await sandbox.run(Program(argv), Limits())).stdout.decode())

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hides the memory of a process")
def test_a_program_without_namespaces_reads_nothing_of_its_worker():
    # As root programs are another user, who may not look into root's home.
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") if os.geteuid() == 0 else sys.executable
    if python is None:
        pytest.skip("there is no Python that another user can run")

    def read(how: str) -> list[str]:
        command = [sys.executable, "-c", WORKER_WITH_A_SANDBOX, how, python]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if "no process for programs" in done.stderr:
            pytest.skip(done.stderr.splitlines()[-1])
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[1::2]

    assert read("hidden") == ["PermissionError"] * 5
    if os.geteuid() != 0:
        assert read("open")[0] == "True"  # some kernels refuse the memory of any process that is not a child
