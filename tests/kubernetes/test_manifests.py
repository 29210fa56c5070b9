"""The manifests for Kubernetes: they fit its schemas, and say the same as the code."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymq.bus.credentials import OPERATOR, SERVICES
from gymq.cluster.server.process import find_binary
from gymq.config import load
from gymq.protocol.instances import ROLE_OF

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
BASE = FOLDER / "base"
# Not of Kubernetes itself: KEDA's, and the files of Kustomize.
WITHOUT_SCHEMA = {"ScaledObject", "TriggerAuthentication", "Kustomization", "Component"}


def documents(file: Path) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(file.read_text()) if found]


KUSTOMIZATION = documents(BASE / "kustomization.yaml")[0]
RESOURCES = [found for name in KUSTOMIZATION["resources"] for found in documents(BASE / name)]


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {found["metadata"]["name"]: found for found in RESOURCES if found["kind"] == kind}


WORKLOADS = of_kind("Deployment") | of_kind("StatefulSet")
PODS = {name: found["spec"]["template"]["spec"] for name, found in WORKLOADS.items()}


@pytest.mark.parametrize("version", ["1.33", "1.37"])
def test_every_manifest_fits_the_schema_of_kubernetes(version: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for found in RESOURCES:
        if found["kind"] not in WITHOUT_SCHEMA:
            kubernetes_validate.validate(found, version, strict=True)


def test_the_schema_of_kubernetes_finds_a_word_that_it_does_not_know() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    wrong = documents(BASE / "agents.yaml")[0]
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.33", strict=True)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_no_power(name: str) -> None:
    pod = PODS[name]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize("name", PODS)
def test_a_pod_says_whether_it_has_started_and_is_ready(name: str) -> None:
    (container,) = PODS[name]["containers"]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
    ports = {port["name"] for port in container["ports"]}
    assert container["readinessProbe"]["httpGet"]["port"] in ports


def test_a_pod_has_the_passwords_of_its_roles_and_no_other() -> None:
    files = {secret["name"]: secret["files"] for secret in KUSTOMIZATION["secretGenerator"]}
    roles = {**ROLE_OF, "bridge": "bridge"}
    for name, pod in PODS.items():
        (secret,) = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
        if name == "nats":
            assert files[secret] == ["auth/nats-server.conf", "auth/routes.conf"]
            continue
        wanted = [SERVICES, OPERATOR] if name == SERVICES else [roles[name]]
        assert files[secret] == [f"auth/{role}.password" for role in wanted]


def test_there_is_a_deployment_for_each_part_of_a_cluster() -> None:
    parts = {}
    for name, pod in PODS.items():
        for argument in pod["containers"][0]["args"]:
            if argument.startswith("--only="):
                parts[name] = argument
    assert parts == {name: f"--only={name}" for name in ("services", "agents", "models", "resources")}


def test_agents_are_scaled_by_every_queue_that_they_have() -> None:
    agents = [found.name for found in load([BASE / "config.yaml"]).instances if found.kind == "agents"]
    triggers = [trigger["metadata"] for trigger in of_kind("ScaledObject")["agents"]["spec"]["triggers"]]
    wanted = {f'queues.#(consumer=="{kind}_{agent}").waiting' for agent in agents for kind in ("tasks", "urgent")}
    assert {trigger["valueLocation"] for trigger in triggers} == wanted
    (url,) = {trigger["url"] for trigger in triggers}
    (port,) = of_kind("Service")["bridge"]["spec"]["ports"]
    assert url == f"http://bridge.gymq.svc.cluster.local:{port['port']}/ui/api/cluster"
    assert "replicas" not in of_kind("Deployment")["agents"]["spec"]  # or each `apply` would undo KEDA's number


def test_every_part_that_has_copies_keeps_some_while_nodes_are_emptied() -> None:
    assert set(of_kind("PodDisruptionBudget")) == {"nats", "agents", "models", "resources"}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The folder with the files of make-secrets."""
    shutil.copytree(FOLDER, tmp_path / "kubernetes", ignore=shutil.ignore_patterns("auth"))
    gymq = tmp_path / "bin" / "gymq"
    gymq.parent.mkdir()
    gymq.write_text(f"#!{sys.executable}\nfrom gymq.cli import main\nmain()\n")
    gymq.chmod(0o755)
    path = f"{gymq.parent}:{os.environ['PATH']}"
    for _ in range(2):
        subprocess.run([tmp_path / "kubernetes" / "make-secrets"], check=True, env={**os.environ, "PATH": path})
    return tmp_path / "kubernetes" / "base"


def test_every_file_of_a_secret_is_made(made: Path) -> None:
    files = {file for generator in KUSTOMIZATION["secretGenerator"] for file in generator["files"]}
    files |= {file for generator in KUSTOMIZATION["configMapGenerator"] for file in generator["files"]}
    assert {file for file in files if not (made / file).is_file()} == set()


def test_the_server_takes_its_configuration(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "auth", tmp_path / "nats-auth")
    (tmp_path / "nats").mkdir()
    shutil.copy(made / "nats.conf", tmp_path / "nats")
    conf = tmp_path / "nats-auth" / "nats-server.conf"
    conf.write_text(conf.read_text().replace("/streams", str(tmp_path / "streams")))
    checked = subprocess.run(
        [str(find_binary()), "-t", "-c", str(tmp_path / "nats" / "nats.conf")],
        env={**os.environ, "POD_NAME": "nats-0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_servers_know_each_other_by_a_password(made: Path) -> None:
    routes = (made / "auth" / "routes.conf").read_text()
    (password,) = set(re.findall(r'password: "([\w-]{32,})"', routes))
    assert routes.count(f"nats://route:{password}@nats-") == of_kind("StatefulSet")["nats"]["spec"]["replicas"]


def policies_of(app: str, direction: str) -> list[dict[str, Any]]:
    """The policies that hold for the pods of a part."""
    return [
        found["spec"]
        for found in of_kind("NetworkPolicy").values()
        if found["spec"]["podSelector"].get("matchLabels", {"app": app}) == {"app": app}
        and direction in found["spec"]["policyTypes"]
    ]


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_reached_by_pods_with_a_label_only(name: str) -> None:
    policies = policies_of(name, "Ingress")
    assert {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []} in policies
    for rule in (rule for policy in policies for rule in policy["ingress"]):
        assert rule["ports"]
        assert rule["from"]
        for peer in rule["from"]:
            assert all(selector.get("matchLabels") for selector in peer.values())


def test_verifiers_reach_the_servers_and_the_name_servers_and_nothing_else() -> None:
    (policy,) = policies_of("resources", "Egress")
    allowed = [(peer, port["port"]) for rule in policy["egress"] for peer in rule["to"] for port in rule["ports"]]
    nats = {"podSelector": {"matchLabels": {"app": "nats"}}}
    names = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    assert allowed == [(nats, 4222), (names, 53), (names, 53)]
