"""The compose file: NATS with roles, closed to the outside. Its commands are run here, without the containers."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymq.auth import ROLES
from gymq.server.binary import find_binary

FILE = Path(__file__).parents[2] / "docker-compose.yml"


@pytest.fixture
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]
    return found


def run_here(command: list[str], service: dict[str, Any], folder: Path) -> None:
    """Run a service's command with its volumes below `folder`."""
    arguments = [argument.replace("/auth", f"{folder}/auth") for argument in service["command"]]
    arguments = [argument.replace("/data", f"{folder}/data") for argument in arguments]
    subprocess.run([*command, *arguments], check=True, capture_output=True)


def test_no_port_is_published(services: dict[str, Any]) -> None:
    assert [name for name, service in services.items() if "ports" in service] == []


def test_the_server_takes_what_is_made_for_it_at_the_first_start_and_the_next(
    services: dict[str, Any], tmp_path: Path
) -> None:
    gymq = [sys.executable, "-c", "from gymq.cli import main; main()"]
    run_here(gymq, services["auth"], tmp_path)
    first = {file.name: file.read_text() for file in (tmp_path / "auth").iterdir()}
    run_here(gymq, services["auth"], tmp_path)
    assert {file.name: file.read_text() for file in (tmp_path / "auth").iterdir()} == first
    assert set(first) == {"nats-server.conf", *(f"{role.name}.password" for role in ROLES)}
    assert f'store_dir: "{tmp_path}/data"' in first["nats-server.conf"]
    run_here([str(find_binary()), "-t"], services["nats"], tmp_path)


def test_nothing_starts_before_what_it_needs(services: dict[str, Any]) -> None:
    assert services["nats"]["depends_on"] == {"auth": {"condition": "service_completed_successfully"}}
    assert services["workers"]["depends_on"] == {"nats": {"condition": "service_healthy"}}


def test_who_connects_has_the_passwords_and_cannot_change_them(services: dict[str, Any]) -> None:
    for name, service in services.items():
        if "GYMQ_NATS" in service.get("environment", {}):
            assert service["environment"]["GYMQ_AUTH"] == "/auth", name
            assert "@" not in service["environment"]["GYMQ_NATS"], name
            assert "auth:/auth:ro" in service["volumes"], name
