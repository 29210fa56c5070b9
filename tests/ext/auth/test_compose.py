"""The compose file: roles, locked containers, closed to the outside. Commands are run here, without containers."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymq.cluster.server.process import find_binary
from gymq.ext.auth.roles import ROLES

ROOT = Path(__file__).parents[3]
OF_GYMQ = {
    "services": ["services", "operator"],
    "agents": ["agent"],
    "models": ["model"],
    "resources": ["resources"],
    "bridge": ["bridge"],
    "collect": ["client"],
}

OTHERS = ["nats", "nats-2", "nats-3", "nats-exporter", "prometheus", "grafana"]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


@pytest.fixture
def services(compose: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = compose["services"]
    return found


def words(command: str | list[str]) -> list[str]:
    """A command with the defaults of its variables."""
    found = command.split() if isinstance(command, str) else command
    return [word for word in (re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in found) if word]


def run_here(command: list[str], service: dict[str, Any], folder: Path) -> None:
    """Run a service's command with its volumes below `folder`."""
    arguments = [re.sub(r"/(auth|streams)\b", rf"{folder}/\1", word) for word in words(service["command"])]
    subprocess.run([*command, *arguments], check=True, capture_output=True)


def test_a_port_is_published_on_the_loopback_address_only(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert set(published) == {"bridge", "prometheus", "grafana"}
    assert [port for ports in published.values() for port in ports if not port.startswith("127.0.0.1:")] == []


def test_the_server_takes_what_is_made_for_it_at_the_first_start_and_the_next(
    services: dict[str, Any], tmp_path: Path
) -> None:
    gymq = [sys.executable, "-c", "from gymq.cli import main; main()"]
    run_here(gymq, services["auth"], tmp_path)
    first = {file.name: file.read_text() for file in (tmp_path / "auth").iterdir()}
    run_here(gymq, services["auth"], tmp_path)
    assert {file.name: file.read_text() for file in (tmp_path / "auth").iterdir()} == first
    assert set(first) == {"nats-server.conf", *(f"{role.name}.password" for role in ROLES)}
    assert f'store_dir: "{tmp_path}/streams/nats"' in first["nats-server.conf"]
    run_here([str(find_binary()), "-t"], services["nats"], tmp_path)


def test_a_container_has_the_passwords_of_its_roles_and_cannot_change_them(services: dict[str, Any]) -> None:
    for name, roles in OF_GYMQ.items():
        service = services[name]
        assert service["environment"]["GYMQ_AUTH"] == "/auth", name
        assert "@" not in service["environment"]["GYMQ_NATS"], name
        mounted = [volume for volume in service["volumes"] if volume["source"] == "auth"]
        assert [volume["target"] for volume in mounted] == [f"/auth/{role}.password" for role in roles], name
        assert [volume["volume"]["subpath"] for volume in mounted] == [f"{role}.password" for role in roles], name
        assert all(volume["read_only"] for volume in mounted), name


def test_only_one_container_sees_all_passwords_and_it_is_in_no_network(services: dict[str, Any]) -> None:
    whole = [name for name, service in services.items() if "auth:/auth" in service.get("volumes", ())]
    assert whole == ["auth"]
    assert services["auth"]["network_mode"] == "none"
    assert "networks" not in services["auth"]


@pytest.mark.parametrize("name", ["auth", *OTHERS, *OF_GYMQ])
def test_a_container_is_locked(services: dict[str, Any], name: str) -> None:
    service = services[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged")
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}


def test_nobody_is_root(services: dict[str, Any]) -> None:
    users = [line.split()[1] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("USER")]
    assert users == ["1000:1000"]
    assert {services[name].get("user", users[-1]) for name in ("nats", "nats-2", "nats-3", *OF_GYMQ)} == {"1000:1000"}
    assert [name for name in OTHERS if services[name].get("user", "0").split(":")[0] == "0"] == []


def test_an_image_has_a_version_and_a_variable_for_its_digest(services: dict[str, Any]) -> None:
    images = {service["image"] for service in services.values()} - {"${GYMQ_IMAGE:-gymq}"}
    assert len(images) == 5
    for image in images:
        assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[a-z/-]+:v?\d[\w.-]+\}", image), image
    assert "latest" not in (ROOT / "docker-compose.yml").read_text()


def test_the_digests_of_all_images_are_written_for_compose(services: dict[str, Any], tmp_path: Path) -> None:
    """With a docker program that knows one digest for each image."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\ntest "$1 $2 $3" = "buildx imagetools inspect" && echo "sha256:of-$4"\n')
    docker.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    pin = subprocess.run(
        [ROOT / "deploy/compose/pin-images"], env=environment, capture_output=True, text=True, check=True
    )
    pinned = dict(line.split("=", 1) for line in pin.stdout.splitlines())
    variables = {found for service in services.values() for found in re.findall(r"\w+_IMAGE", str(service))}
    assert set(pinned) == variables - {"GYMQ_IMAGE"}
    assert pinned["NATS_IMAGE"] == "nats:2.15-alpine@sha256:of-nats:2.15-alpine"
    docker.write_text("#!/bin/sh\nexit 1\n")
    refused = subprocess.run([ROOT / "deploy/compose/pin-images"], env=environment, capture_output=True, check=False)
    assert refused.returncode == 1
    assert refused.stdout == b""


def test_nobody_can_log_in_with_a_password_that_everybody_knows(services: dict[str, Any]) -> None:
    grafana = services["grafana"]["environment"]
    assert grafana["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert grafana["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert grafana["GF_AUTH_BASIC_ENABLED"] == "false"


def test_verifiers_reach_no_network_but_that_of_the_bus(compose: dict[str, Any]) -> None:
    assert compose["services"]["resources"]["networks"] == ["bus"]
    assert compose["networks"]["bus"]["internal"]


def test_only_nats_servers_are_where_routes_need_no_password(services: dict[str, Any]) -> None:
    there = [name for name, service in services.items() if "routes" in service.get("networks", ())]
    assert there == ["nats", "nats-2", "nats-3"]


def test_every_service_that_stays_says_whether_it_is_healthy(services: dict[str, Any]) -> None:
    staying = set(services) - {"auth", "collect", "nats-exporter"}
    assert {name for name in staying if "healthcheck" not in services[name]} == set()


def test_the_three_servers_of_a_cluster_know_each_other(services: dict[str, Any]) -> None:
    lines = (ROOT / "deploy" / "compose" / "cluster.env").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    routes = re.findall(r"--routes (\S+)", settings["GYMQ_NATS_ROUTES"])
    for name in ("nats-2", "nats-3"):
        routes += re.findall(r"--routes (\S+)", services[name]["command"])
    assert len(set(routes)) == 1
    assert settings["GYMQ_NATS"].split(",") == [f"nats://{name}:4222" for name in ("nats", "nats-2", "nats-3")]


def test_files_that_are_mounted_can_be_read(compose: dict[str, Any]) -> None:
    for config in compose["configs"].values():
        content = (ROOT / words(config["file"])[0]).read_text()
        assert json.loads(content) if config["file"].endswith(".json") else yaml.safe_load(content)


def test_what_the_sandbox_may_ask_the_kernel_is_a_list_of_refusals(services: dict[str, Any]) -> None:
    assert "seccomp=./deploy/seccomp/sandbox.json" in services["resources"]["security_opt"]
    rules = json.loads((ROOT / "deploy" / "seccomp" / "sandbox.json").read_text())
    (refused,) = rules["syscalls"]
    assert refused["action"] == "SCMP_ACT_ERRNO"
    assert {"bpf", "kexec_load", "init_module", "keyctl", "ptrace", "reboot"} <= set(refused["names"])
    assert not {"unshare", "mount", "pivot_root", "mount_setattr"} & set(refused["names"])
