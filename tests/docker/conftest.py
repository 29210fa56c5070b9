"""One cluster of the compose file for all tests here, under a unique project name.

Where no Docker engine answers, or a base image is missing, the tests skip with the reason; with GYMQ_REQUIRE_DOCKER=1
they fail instead.
"""

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Its helper container cannot be pulled everywhere; what is started here is removed here.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

from testcontainers.compose import DockerCompose

ROOT = Path(__file__).parents[2]
BASE_IMAGES = ("python:3.13-slim", "nats:2.15-alpine")


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=600)


def missing() -> str | None:
    """Why there can be no containers here."""
    try:
        if docker("compose", "version").returncode or docker("version").returncode:
            return "no Docker engine with Compose answers: see tools/docker/start-engine"
    except FileNotFoundError:
        return "there is no docker command: see tools/docker/start-engine"
    absent = [image for image in BASE_IMAGES if docker("image", "inspect", image).returncode]
    return f"{' and '.join(absent)} must be pulled, or made by tools/docker/base-images" if absent else None


class Containers:
    """A cluster of containers, and what is done to it."""

    def __init__(self, compose: DockerCompose, project: str, rows: Path) -> None:
        """
        Args:
            rows: a data set, which containers see as /rows.jsonl.
        """
        self._compose = compose
        self.project = project
        self._rows = rows

    def command(self, *arguments: str) -> list[str]:
        return [*self._compose.compose_command_property, *arguments]

    def run(self, *arguments: str) -> str:
        """The output of a command of Compose."""
        done = subprocess.run(
            self.command(*arguments), cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def gymq(self, *arguments: str) -> str:
        """The output of a gymq command of a client."""
        return self.run(*self.of_client(*arguments))

    def of_client(self, *arguments: str) -> list[str]:
        """A gymq command in a container with the role client, for Compose."""
        rows = f"--volume={self._rows}:/rows.jsonl:ro"
        return ["run", "--rm", "--no-deps", "--no-TTY", rows, "collect", *arguments]

    def states(self) -> dict[str, tuple[str, str]]:
        """State and health of each container that is or was."""
        lines = self.run("ps", "--all", "--format", "json").splitlines()
        return {found["Name"]: (found["State"], found["Health"]) for found in map(json.loads, lines)}

    def inside(self, service: str, *arguments: str) -> str:
        return self.run("exec", "--no-TTY", service, *arguments)

    def url_of_bridge(self) -> str:
        return "http://" + self.run("port", "bridge", "11000").strip()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.gymq("status", "--json"))
        return found


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's rows whose verifiers compute next to nothing, since other things may keep the machine busy."""
    cheap = {"mcqa_simple_agent", "example_session_state_mgmt_simple_agent"}
    lines = (ROOT / "examples" / "demo" / "rows.jsonl").read_text().splitlines(keepends=True)
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    file.write_text("".join(line for line in lines if json.loads(line)["agent_ref"]["name"] in cheap))
    file.chmod(0o644)
    return file


@pytest.fixture(scope="session")
def containers(rows: Path) -> Iterator[Containers]:
    why = missing()
    if why is not None:
        if os.environ.get("GYMQ_REQUIRE_DOCKER") == "1":
            pytest.fail(why)
        pytest.skip(why)
    project = f"gymq-test-{secrets.token_hex(4)}"
    settings = {
        "COMPOSE_PROJECT_NAME": project,
        "COMPOSE_ANSI": "never",
        "GYMQ_IMAGE": project,
        "GYMQ_PORT": "0",  # one that is free
        "GYMQ_CONFIG": str(Path(__file__).parent / "config.yaml"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        compose = DockerCompose(ROOT, profiles=["collect"], build=False, wait=True)
        made = Containers(compose, project, rows)
        try:
            try:
                made.run("up", "--build", "--wait", "bridge")
            except AssertionError as error:
                pytest.fail(f"{error}\n{made.run('logs', '--tail', '20')}")
            yield made
        finally:
            made.run("down", "--volumes", "--remove-orphans", "--timeout", "5")
            docker("image", "rm", project)
