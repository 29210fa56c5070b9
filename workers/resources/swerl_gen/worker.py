"""swerl_gen: repair a repository by search-and-replace edits, or write a script that reproduces an issue."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, Literal

import pydantic
from gymq.workers.resources.swerl_gen.container import Containers, instance_of, may_be_written
from gymq.workers.resources.swerl_gen.edits import Repair, Void, edited_files, patch_of, path_in_repository
from gymq.workers.resources.swerl_gen.grading import AS_MEANT, PUBLISHED, REWARDS, Resolution, resolution_of
from gymq.workers.resources.swerl_gen.reproduction import new_file_patch, reproduces, script_in

import gymq
from gymq.processes import ComputeLimits, CpuTimeUsedUp
from gymq.responses import assistant_text
from gymq.sandboxed import SandboxedOptions


class IssueRow(gymq.Row):
    instance: dict[str, Any]
    metadata: dict[str, Any] = pydantic.Field(default_factory=dict)
    mode: Literal["eval", "repro-gen"] = "eval"


class SwerlGen(gymq.SandboxedEnvironment[IssueRow]):
    """Reward for edits that make a repository's tests pass, or for a script that shows its issue."""

    class Options(SandboxedOptions):
        without_meaning: ClassVar = SandboxedOptions.without_meaning | {"env"}
        num_processes: pydantic.PositiveInt = 1
        sandbox_timeout: pydantic.PositiveFloat = 600.0
        debug: bool = False
        relaxed_formatting: bool = False
        images_folder: str | None = None  # repositories by image name, for the local sandbox
        hardened: bool = True  # false: the peer's rewards

    reward_range = (0.0, 1.0)

    # Replies and logs are read in processes, and the event loop is free meanwhile. Both take time in proportion to
    # their length; only `model_patch`, for the reader, may take longer, and is null if it does.
    compute_limits = ComputeLimits(cpu_s=120.0, timeout_s=600.0)

    async def start(self) -> None:
        options = self.options
        await super().start()
        self._rule = AS_MEANT if options.hardened else PUBLISHED
        self._containers = Containers(
            self.sandbox, options.sandbox, options.images_folder, options.sandbox_timeout, alike=self._rule.alike
        )
        self._slots = asyncio.Semaphore(options.num_processes)

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
        contents, remove_repo_name = file_contents(row.metadata)
        relaxed = self.options.relaxed_formatting
        files = self._rule.kept(await self.compute(edited_files, reply, relaxed, contents), contents)
        patch = None
        with suppress(CpuTimeUsedUp):
            patch = await self.compute(patch_of, files, contents, remove_repo_name)
        answer["model_patch"] = patch
        edited = {path_in_repository(path, remove_repo_name): text for path, text in files.items()}
        image = row.metadata.get("image")
        if not image:
            return 0.0
        async with self._timed(answer):
            resolution = await self.evaluate(row.instance, image, Repair(edited, patch))
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
        async with self._timed(answer):
            before, after = await self.reproduce(row.instance, image, name, script)
        answer["verification_result"] = _result("done", before=before, after=after)
        return float(reproduces(before, after))

    @asynccontextmanager
    async def _timed(self, answer: dict[str, Any]) -> AsyncIterator[None]:
        """Wait for a slot and note how long the block runs; one that runs for too long earns nothing."""
        began = time.monotonic()
        try:
            async with self._slots:
                yield
        except TimeoutError:
            answer["verification_result"] = _result("timeout")
            raise Void("it took too long") from None
        finally:
            answer["verification_time"] = time.monotonic() - began

    async def evaluate(self, instance: dict[str, Any], image: str, repair: Repair) -> Resolution:
        """Run the tests over the repository with edited files.

        Raises:
            TimeoutError: they took too long.
            InvalidTask, gymq.ComponentFailed
        """
        issue = instance_of(instance)
        if not all(map(may_be_written, repair.files)):
            return "RESOLVED_NO"
        log, own = await self._containers.evaluate(issue, image, repair.files)
        listed = (issue.repo, issue.FAIL_TO_PASS, issue.PASS_TO_PASS)
        try:
            return await self.compute(resolution_of, log, *listed, own, self._rule)
        except TimeoutError:
            raise gymq.ComponentFailed("the log of the tests could not be read in time; nothing is known") from None

    async def reproduce(
        self, instance: dict[str, Any], image: str, name: str, script: str
    ) -> tuple[list[int], list[int]]:
        """Return the exit codes of a script of the policy, before and after the reference patch.

        A script that seems to reproduce the issue is run again, without and with the patch at random, so that one that
        guesses is found out. The first code that differs is added.

        Raises:
            TimeoutError: they took too long.
            InvalidTask, gymq.ComponentFailed
        """
        issue = instance_of(instance)
        before = [await self._containers.exit_code(issue, image, name, script, solved=False)]
        after = [await self._containers.exit_code(issue, image, name, script, solved=True)]
        if reproduces(before, after):
            for _ in range(self._rule.runs_again):
                solved = random.choice((False, True))
                codes = after if solved else before
                code = await self._containers.exit_code(issue, image, name, script, solved)
                if code != codes[0]:
                    codes.append(code)
                    break
        return before, after


def file_contents(metadata: dict[str, Any]) -> tuple[dict[str, str], bool]:
    """Return the files that edits may change, and whether their paths begin with the repository's name.

    Raises:
        Void: the row does not give them in the way it should, so no edit can be applied.
    """
    try:
        contents, remove_repo_name = json.loads(metadata["relevant_file_contents"]), metadata["remove_repo_name"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Void("metadata lacks remove_repo_name, or its relevant_file_contents is not JSON") from None
    if not isinstance(contents, dict) or not all(isinstance(text, str) for text in contents.values()):
        raise Void("metadata.relevant_file_contents is not an object of texts")
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
