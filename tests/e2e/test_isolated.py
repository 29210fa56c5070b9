"""Workers that need different versions of one library run in one cluster, each with its own."""

import zipfile
from pathlib import Path

import pytest

import gymq
from gymq.cluster.launch import Cluster
from gymq.errors import UsageError
from gymq.protocol.instances import Instance

WORKER = """
import gymq
import tidbit


class Teller(gymq.Resources[gymq.Row]):
    \"\"\"Notes the version that it sees.\"\"\"

    class Options(gymq.WorkerOptions):
        record: str

    async def start(self):
        open(self.options.record, "w").write(tidbit.VERSION)

    async def verify(self, request):
        return gymq.Verdict(1.0)
"""


def worker_that_needs(version: str, folder: Path) -> Path:
    """A worker beside its requirements: a library of that version, as a wheel made here."""
    folder.mkdir()
    wheel = folder / f"tidbit-{version}-py3-none-any.whl"
    info = f"tidbit-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tidbit.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tidbit\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    (folder / "requirements.txt").write_text(f"{wheel}\n")
    (folder / "worker.py").write_text(WORKER)
    return folder / "worker.py"


def isolated(name: str, file: Path, record: Path) -> Instance:
    return Instance(name, "resources", str(file), {"isolated": True, "record": str(record)})


async def test_each_sees_its_own_version(tmp_path: Path) -> None:
    record = {version: tmp_path / f"record-{version}" for version in ("1.0", "2.0")}
    instances = [
        isolated(f"teller{version[0]}", worker_that_needs(version, tmp_path / version), file)
        for version, file in record.items()
    ]
    async with Cluster(instances, folder=tmp_path / "cluster", drain_s=1.0):
        assert {file.read_text() for file in record.values()} == {"1.0", "2.0"}
    environments = sorted(path.name for path in (tmp_path / "cluster" / "environments").iterdir() if path.is_dir())
    assert len(environments) == 2


@pytest.mark.nightly
async def test_a_list_names_further_packages(tmp_path: Path) -> None:
    file = worker_that_needs("1.0", tmp_path / "1.0")
    (file.parent / "requirements.txt").write_text("")
    record = tmp_path / "record"
    options = {
        "isolated": [f"tidbit @ {(file.parent / 'tidbit-1.0-py3-none-any.whl').as_uri()}"],
        "record": str(record),
    }
    async with Cluster([Instance("teller", "resources", str(file), options)], folder=tmp_path / "cluster", drain_s=1.0):
        assert record.read_text() == "1.0"


def test_an_option_of_pip_is_no_package() -> None:
    with pytest.raises(gymq.OptionsError, match="isolated"):
        gymq.Resources({"isolated": ["--index-url=http://example.org"]})


async def test_the_error_names_what_cannot_be_installed(tmp_path: Path) -> None:
    file = worker_that_needs("1.0", tmp_path / "1.0")
    (file.parent / "requirements.txt").write_text("./no-such-file-1.0-py3-none-any.whl\n")
    with pytest.raises(UsageError, match=r"teller-0: .*pip install.* failed: .*no-such-file"):
        async with Cluster([isolated("teller", file, tmp_path / "record")], folder=tmp_path / "cluster"):
            pass


async def test_a_worker_that_does_not_say_what_it_requires_cannot_be_isolated(tmp_path: Path) -> None:
    file = worker_that_needs("1.0", tmp_path / "1.0")
    (file.parent / "requirements.txt").unlink()
    with pytest.raises(UsageError, match=r"neither a requirements.txt beside it nor an extra"):
        async with Cluster([isolated("teller", file, tmp_path / "record")], folder=tmp_path / "cluster"):
            pass
