"""TLS: who is believed, and that a password is never said in plain text where TLS was asked for."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gymq.bus import Bus, BusError, tls
from tests.support.waiting import DEADLINE_S

from .certificates import OPENSSL, Certificate, encrypt_key, make_authority, make_certificate
from .conftest import RoleServer

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="makes certificates with openssl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Certificate:
    return make_authority(folder, "authority")


@pytest.fixture(scope="module")
def client(folder: Path, authority: Certificate) -> Certificate:
    return make_certificate(folder, "client", authority)


@pytest.fixture(scope="module")
def server(folder: Path, authority: Certificate) -> Iterator[RoleServer]:
    """A server that speaks TLS only."""
    own = make_certificate(folder, "server", authority)
    yield from started(RoleServer(folder / "one-sided", tls={"tls_cert": own.cert, "tls_key": own.key}))


@pytest.fixture(scope="module")
def strict_server(folder: Path, authority: Certificate) -> Iterator[RoleServer]:
    """A server that wants to see a certificate too."""
    own = make_certificate(folder, "strict", authority)
    files = {"tls_cert": own.cert, "tls_key": own.key, "tls_ca": authority.cert}
    yield from started(RoleServer(folder / "two-sided", tls=files))


def started(made: RoleServer) -> Iterator[RoleServer]:
    made.start()
    yield made
    made.stop()


async def connects(url: str) -> None:
    bus = await Bus.connect(url, role="client", name="test", timeout_s=1.5)
    await bus.close()


async def test_a_server_whose_certificate_is_signed_by_the_authority_is_believed(
    server: RoleServer, authority: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tls.CA, str(authority.cert))
    await connects(server.url_of("client"))
    await connects(server.url_of("client").replace("tls://", "nats://"))


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_a_server_signed_by_nobody_known_is_not(
    scheme: str, server: RoleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(tls.CA, raising=False)
    with pytest.raises(BusError, match=r"(?i)certificate") as refused:
        await connects(server.url_of("client").replace("tls://", f"{scheme}://"))
    assert server.password("client") not in str(refused.value)


async def test_a_certificate_for_another_name_is_not_believed(
    server: RoleServer, authority: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tls.CA, str(authority.cert))
    with pytest.raises(BusError, match=r"(?i)certificate"):
        await connects(server.url_of("client").replace("127.0.0.1", "localhost"))


async def test_a_server_may_want_a_certificate_of_ours(
    strict_server: RoleServer, authority: Certificate, client: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tls.CA, str(authority.cert))
    with pytest.raises(BusError):
        await connects(strict_server.url_of("client"))
    monkeypatch.setenv(tls.CERT, str(client.cert))
    monkeypatch.setenv(tls.KEY, str(client.key))
    await connects(strict_server.url_of("client"))


async def test_certificate_and_key_may_be_in_one_file(
    strict_server: RoleServer,
    authority: Certificate,
    client: Certificate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(client.cert.read_bytes() + client.key.read_bytes())
    monkeypatch.setenv(tls.CA, str(authority.cert))
    monkeypatch.setenv(tls.CERT, str(both))
    await connects(strict_server.url_of("client"))


# Files that are not certificates --------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
@pytest.mark.parametrize("variable", [tls.CA, tls.CERT])
async def test_a_file_without_a_certificate_is_a_sentence_with_its_name(
    variable: str, content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv(variable, str(file))
    with pytest.raises(BusError, match=f"{variable}={file}"):
        await connects("tls://127.0.0.1:1")


async def test_the_key_of_another_certificate_is_a_sentence(
    authority: Certificate, client: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tls.CERT, str(client.cert))
    monkeypatch.setenv(tls.KEY, str(authority.key))
    with pytest.raises(BusError, match="do not belong together"):
        await connects("tls://127.0.0.1:1")


async def test_an_encrypted_key_is_refused_and_no_password_asked_for(
    client: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encrypted = encrypt_key(client, tmp_path / "encrypted.key")
    monkeypatch.setenv(tls.CERT, str(client.cert))
    monkeypatch.setenv(tls.KEY, str(encrypted))
    with pytest.raises(BusError, match="encrypted"):
        await connects("tls://127.0.0.1:1")


async def test_a_key_without_a_certificate_is_a_sentence(client: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tls.KEY, str(client.key))
    with pytest.raises(BusError, match=tls.CERT):
        await connects("tls://127.0.0.1:1")


# Somebody between the two ---------------------------------------------------------------------------------------------


class Eavesdropper:
    """Says that it is a NATS server without TLS, and keeps what it receives."""

    def __init__(self) -> None:
        self.heard = b""
        self.url = ""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"auth_required":true}\r\n')
        while said := await reader.read(4096):
            self.heard += said
            writer.write(b"PONG\r\n" * said.count(b"PING\r\n"))
        writer.close()


@pytest.fixture
async def eavesdropper() -> AsyncIterator[Eavesdropper]:
    listening = Eavesdropper()
    async with await asyncio.start_server(listening.talk, "127.0.0.1", 0) as server:
        listening.url = f"client:a-secret@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield listening


async def test_with_tls_nothing_is_said_to_a_server_without(eavesdropper: Eavesdropper) -> None:
    with pytest.raises(BusError, match="TLS"):
        await connects(f"tls://{eavesdropper.url}")
    assert eavesdropper.heard == b""


async def test_without_tls_a_password_is_said(eavesdropper: Eavesdropper) -> None:
    await connects(f"nats://{eavesdropper.url}")
    assert b"a-secret" in eavesdropper.heard


# Commands and the processes they start --------------------------------------------------------------------------------


async def test_commands_and_their_processes_speak_tls(
    strict_server: RoleServer, authority: Certificate, client: Certificate, tmp_path: Path
) -> None:
    environment = os.environ | {
        "GYMQ_NATS": strict_server.url,
        "GYMQ_AUTH": str(strict_server.folder),
        tls.CA: str(authority.cert),
        tls.CERT: str(client.cert),
        tls.KEY: str(client.key),
    }
    (tmp_path / "config.yaml").write_text(
        "mcqa: {resources_servers: {mcqa: {entrypoint: worker.py, domain: knowledge}}}\n"
    )
    gymq = [sys.executable, "-c", "from gymq.cli import main; main()"]
    up = await asyncio.create_subprocess_exec(
        *gymq, "up", "--config", "config.yaml", cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    )
    try:
        assert up.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            assert b"in 2 processes" in await up.stdout.readline()
        status = await asyncio.create_subprocess_exec(
            *gymq, "status", "--json", cwd=tmp_path, env=environment, stdout=subprocess.PIPE
        )
        said, _ = await status.communicate()
        assert status.returncode == 0
        assert b'"mcqa"' in said
    finally:
        up.terminate()
        await up.wait()
