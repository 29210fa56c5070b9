"""A cluster of Slurm with one node, this machine; of Debian's packages slurmctld, slurmd, slurm-client and munge."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .ports import free_port
from .waiting import until

REQUIRED = "GYMQ_REQUIRE_SLURM"
"""Where it is set, tests fail that cannot have Slurm."""

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo")
CONF = """
ClusterName=one
SlurmctldHost={name}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
NodeName={name} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes={name} Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.asynccontextmanager
async def one_node(folder: Path) -> AsyncIterator[dict[str, str]]:
    """Run the cluster while the block runs; gives the variables by which its commands find it."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        why = f"needs Slurm and root; missing: {', '.join(missing) or 'root'}"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(why)
        pytest.skip(why)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    conf = folder / "slurm.conf"
    name = socket.gethostname().partition(".")[0]
    ports = {"controller_port": free_port("127.0.0.1"), "node_port": free_port("127.0.0.1")}
    conf.write_text(CONF.format(name=name, folder=folder, cpus=os.cpu_count(), **ports))
    variables = {**os.environ, "SLURM_CONF": str(conf)}
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed", "log")]
    daemons = [
        ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files],
        ["slurmctld", "-D", "-f", str(conf)],
        ["slurmd", "-D", "-f", str(conf)],
    ]
    with contextlib.ExitStack() as stack:
        for command in daemons:
            stack.enter_context(_running(command, variables, folder))
        await until(lambda: _state(variables) == "idle")
        yield variables


@contextlib.contextmanager
def _running(command: list[str], variables: dict[str, str], folder: Path) -> Iterator[None]:
    with (folder / f"{command[0]}.out").open("wb") as out:
        process = subprocess.Popen(command, env=variables, stdout=out, stderr=out)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(300)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _state(variables: dict[str, str]) -> str:
    command = ["sinfo", "--noheader", "--format=%T"]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False).stdout.strip()
