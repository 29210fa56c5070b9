"""swerl_gen: repair a repository by search-and-replace edits, or write a script that reproduces an issue."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from typing import Any, ClassVar, Literal

import pydantic

import gymq
from gymq.resources import Need
from gymq.responses import assistant_text
from gymq.sandbox import SandboxOptions
from workers.resources.swerl_gen.container import Containers, instance_of
from workers.resources.swerl_gen.edits import Void, patch_of, solution_of
from workers.resources.swerl_gen.grading import REWARDS, Resolution
from workers.resources.swerl_gen.reproduction import new_file_patch, reproduces, script_in


class IssueRow(gymq.Row):
    instance: dict[str, Any]
    metadata: dict[str, Any] = pydantic.Field(default_factory=dict)
    mode: Literal["eval", "repro-gen"] = "eval"


class SwerlGen(gymq.Resources[IssueRow]):
    """Reward for edits that make a repository's tests pass, or for a script that shows its issue."""

    class Options(gymq.WorkerOptions):
        num_processes: pydantic.PositiveInt = 1
        sandbox_timeout: pydantic.PositiveFloat = 600.0
        debug: bool = False
        relaxed_formatting: bool = False
        images_folder: str | None = None  # repositories by image name, for the local sandbox
        sandbox: SandboxOptions = SandboxOptions()

    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    deterministic: ClassVar[bool] = False
    needs: ClassVar[frozenset[Need]] = frozenset({"sandbox"})

    async def start(self) -> None:
        options = self.options
        self._sandbox = await options.sandbox.started()
        self._containers = Containers(self._sandbox, options.sandbox, options.images_folder, options.sandbox_timeout)
        self._slots = asyncio.Semaphore(options.num_processes)

    async def stop(self) -> None:
        await self._sandbox.stop()

    async def verify(self, request: gymq.VerifyRequest[IssueRow]) -> gymq.Verdict:
        row, reply = request.row, assistant_text(request.response)
        answer: dict[str, Any] = dict.fromkeys(
            ("model_patch", "verification_result", "verification_time", "repro_test_info_base64")
        )
        answer["model_output"] = reply or None
        try:
            if not reply:
                raise Void("the reply is empty")
            reward = await (
                self._repair(row, reply, answer) if row.mode == "eval" else self._reproduce(row, reply, answer)
            )
        except Void:
            reward = 0.0
        return gymq.Verdict(reward, **answer)

    async def _repair(self, row: IssueRow, reply: str, answer: dict[str, Any]) -> float:
        solution = solution_of(reply, self.options.relaxed_formatting)
        answer["model_patch"] = patch = patch_of(solution, *file_contents(row.metadata))
        image = row.metadata.get("image")
        if not image:
            return 0.0
        began = time.monotonic()
        try:
            async with self._slots:
                resolution = await self.evaluate(row.instance, image, patch)
        except TimeoutError:
            answer["verification_result"] = _result("timeout")
            return 0.0
        finally:
            answer["verification_time"] = time.monotonic() - began
        answer["verification_result"] = _result("done", resolution=resolution)
        return REWARDS[resolution]

    async def _reproduce(self, row: IssueRow, reply: str, answer: dict[str, Any]) -> float:
        name, script = script_in(reply)
        test_patch = new_file_patch(name, script)
        answer["model_patch"] = row.instance.get("patch")
        info = json.dumps({"name": name, "test_patches": [test_patch]})
        answer["repro_test_info_base64"] = base64.b64encode(info.encode()).decode()
        image = row.metadata.get("image")
        if not image:
            return 0.0
        began = time.monotonic()
        try:
            async with self._slots:
                before, after = await self.reproduce(row.instance, image, test_patch, name)
        except TimeoutError:
            answer["verification_result"] = _result("timeout")
            return 0.0
        finally:
            answer["verification_time"] = time.monotonic() - began
        answer["verification_result"] = _result("done", before=before, after=after)
        return float(reproduces(before, after))

    async def evaluate(self, instance: dict[str, Any], image: str, patch: str) -> Resolution:
        """Run the tests over the patched repository.

        Raises:
            TimeoutError: they took too long.
            InvalidTask, SandboxFailed
        """
        return await self._containers.evaluate(instance_of(instance), image, patch)

    async def reproduce(
        self, instance: dict[str, Any], image: str, test_patch: str, name: str
    ) -> tuple[list[int], list[int]]:
        """Exit codes of a script that a patch adds, before and after the reference patch.

        Raises:
            TimeoutError: they took too long.
            InvalidTask, SandboxFailed
        """
        issue = instance_of(instance)
        before = await self._containers.exit_code(issue, image, [test_patch], name)
        after = await self._containers.exit_code(issue, image, [issue.patch, test_patch], name)
        return [before], [after]


def file_contents(metadata: dict[str, Any]) -> tuple[dict[str, str], bool]:
    """The files that edits may change, and whether their paths begin with the repository's name.

    Raises:
        Void: the row does not give them in the way it should, so no edit can be applied.
    """
    try:
        contents, remove_repo_name = json.loads(metadata["relevant_file_contents"]), metadata["remove_repo_name"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Void("metadata lacks remove_repo_name, or its relevant_file_contents is no JSON") from None
    if not isinstance(contents, dict) or not all(isinstance(text, str) for text in contents.values()):
        raise Void("metadata.relevant_file_contents is no object of texts")
    return contents, bool(remove_repo_name)


def _result(
    status: str,
    *,
    resolution: Resolution | None = None,
    before: list[int] | None = None,
    after: list[int] | None = None,
) -> dict[str, Any]:
    return {
        "status": status,
        "resolution": resolution,
        "return_codes_before_patch": before,
        "return_codes_after_patch": after,
    }
