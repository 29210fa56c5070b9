"""Tasks in Harbor's format (https://harborframework.com): a folder with an instruction, an image, tests."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pydantic

import gymq
from gymq.protocol.messages import FailureClass, Stage
from gymq.sandbox import ProgramResult, Workspace, run_command

REWARDS = "/logs/verifier"


class Environment(pydantic.BaseModel):
    """Settings of the container; fields that are not listed have no effect."""

    docker_image: str | None = None
    build_timeout_sec: pydantic.PositiveFloat = 600.0
    memory_mb: pydantic.PositiveInt | None = None
    allow_internet: bool = True


class Phase(pydantic.BaseModel):
    """The agent's part, or the verifier's."""

    timeout_sec: pydantic.PositiveFloat | None = None
    env: dict[str, str] = pydantic.Field(default_factory=dict)


class Config(pydantic.BaseModel):
    """`task.toml`."""

    environment: Environment = pydantic.Field(default_factory=Environment)
    agent: Phase = pydantic.Field(default_factory=Phase)
    verifier: Phase = pydantic.Field(default_factory=Phase)


class Task:
    """A task's folder, read.

    Raises:
        InvalidTask: it is none that can be run here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for needed in ("task.toml", "instruction.md", "tests/test.sh"):
            if not (folder / needed).is_file():
                raise gymq.InvalidTask(f"the task {folder.name} has no {needed}")
        try:
            self.config = Config.model_validate(tomllib.loads((folder / "task.toml").read_text(encoding="utf-8")))
        except (tomllib.TOMLDecodeError, pydantic.ValidationError) as error:
            raise gymq.InvalidTask(f"the task {folder.name}: task.toml: {error}") from None
        self.instruction = (folder / "instruction.md").read_text(encoding="utf-8")

    async def image(self) -> str:
        """Return the image to run in, built of `environment/Dockerfile` if the task names none and it is not there yet.

        Raises:
            ComponentFailed: it cannot be built.
            InvalidTask: there is nothing to build it of.
        """
        if self.config.environment.docker_image is not None:
            return self.config.environment.docker_image
        place = self.folder / "environment"
        if not (place / "Dockerfile").is_file():
            raise gymq.InvalidTask(f"the task {self.folder.name} has neither docker_image nor environment/Dockerfile")
        tag = f"gymq-harbor/{self.folder.name.lower()}:{_digest(place)}"
        limit_s = self.config.environment.build_timeout_sec
        if (await _docker("image", "inspect", tag, wall_s=60.0)).exit_status != 0:
            built = await _docker("build", "--quiet", "--tag", tag, str(place), wall_s=limit_s)
            if built.exit_status != 0:
                said = built.stderr.decode(errors="replace").strip()[-300:]
                raise gymq.ComponentFailed(f"the image of {self.folder.name} was not built: {said}")
        return tag

    async def copy(self, name: str, place: Workspace) -> None:
        """Put a folder of the task at the root of a container."""
        body = io.BytesIO()
        with tarfile.open(fileobj=body, mode="w") as archive:
            archive.add(self.folder / name, arcname=name)
        ended = await place.run("tar -xf - -C / --no-same-owner", wall_s=120.0, stdin=body.getvalue())
        if ended.exit_status != 0:
            raise gymq.ComponentFailed(f"{name} cannot be copied: {ended.stderr.decode(errors='replace')[-300:]}")

    async def verify(self, place: Workspace, timeout_s: float) -> dict[str, float]:
        """Run the tests where the agent was; the rewards that they write.

        Raises:
            RolloutError: VERIFIER_FAILED, they wrote none, or nothing that is one.
        """
        await place.run(f"rm -rf /tests {REWARDS} && mkdir -p {REWARDS}", wall_s=60.0)
        await self.copy("tests", place)
        ended = await place.run("bash /tests/test.sh", wall_s=timeout_s, env=self.config.verifier.env)
        if ended.limit is not None:
            raise _no_reward(f"the tests of {self.folder.name} were ended by the limit of {ended.limit}")
        # As in Harbor, the file with several rewards comes first.
        written = await place.run(f"cat {REWARDS}/reward.json", wall_s=60.0)
        if written.exit_status == 0:
            try:
                return _rewards(json.loads(written.stdout), self.folder.name)
            except (ValueError, RecursionError):
                raise _no_reward(f"the tests of {self.folder.name} wrote a reward.json that is not JSON") from None
        text = await place.run(f"cat {REWARDS}/reward.txt", wall_s=60.0)
        if text.exit_status != 0:
            said = ended.stderr.decode(errors="replace").strip()[-300:]
            raise _no_reward(f"the tests of {self.folder.name} wrote no reward: {said}")
        return _rewards({"reward": text.stdout.decode(errors="replace").strip()}, self.folder.name)


def _rewards(written: Any, name: str) -> dict[str, float]:
    try:
        members = written if isinstance(written, dict) else {"reward": written}
        rewards = {key: float(value) for key, value in members.items()}
    except (TypeError, ValueError, OverflowError):
        rewards = {}
    if not rewards or not all(map(math.isfinite, rewards.values())):
        raise _no_reward(f"the tests of {name} wrote {written!r:.200}, which is not a reward")
    return rewards


def _no_reward(text: str) -> gymq.RolloutError:
    return gymq.RolloutError(FailureClass.VERIFIER_FAILED, text, stage=Stage.VERIFY)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


async def _docker(*arguments: str, wall_s: float) -> ProgramResult:
    return await run_command(["docker", *arguments], wall_s=wall_s, env=os.environ)
