"""The key of a bridge in the manifests for Kubernetes."""

from pathlib import Path

import pytest

from gymq.config import load
from gymq.ext.nemo_gym.settings import settings_of
from tests.kubernetes.test_manifests import BASE, KUSTOMIZATION, PODS
from tests.kubernetes.test_manifests import made as made


def test_the_key_of_the_bridge_is_one_that_it_takes_and_is_kept(made: Path) -> None:
    key = (made / "auth" / "bridge.key").read_text()
    settings_of({"bridge": {"api_key": key}})
    assert key == key.strip()
    assert len(key) >= 32
    assert (made / "auth" / "bridge.key").stat().st_mode & 0o077 == 0


def test_the_bridge_has_a_key_that_is_in_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    (container,) = PODS["bridge"]["containers"]
    (key,) = [entry for entry in container["env"] if "valueFrom" in entry]
    reference = key["valueFrom"]["secretKeyRef"]
    files = {secret["name"]: secret["files"] for secret in KUSTOMIZATION["secretGenerator"]}
    assert files[reference["name"]] == [f"auth/{reference['key']}"]
    monkeypatch.setenv(key["name"], "what-the-secret-holds-here")
    overrides = [argument for argument in container["args"] if argument.startswith("++")]
    settings = settings_of(load([BASE / "config.yaml"], overrides).tree)
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == "what-the-secret-holds-here"
