"""Runs an instance's scripts in a sandbox, over a fresh copy of its repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pydantic

import gymq
from gymq.authoring import first_problem
from gymq.sandbox import GIB, MIB, Finished, Limits, Program, Sandbox, SandboxOptions, check_path
from workers.resources.swerl_gen.grading import Resolution, resolution_of
from workers.resources.swerl_gen.logs import statuses_of_own_parser

_MARK = "===== what the instance's own parser wrote ====="
_NOT_APPLIED = 120  # exit status; scripts say 0, 1 or 2

_EVALUATION = f"""exec 2>&1
bash setup.sh
(cd "$1" && git apply -v "$OLDPWD/model.patch" && echo "Applied patch")
if [ -f own_tests.sh ]; then
    (cd "$1" && bash "$OLDPWD/own_tests.sh" > "$OLDPWD/stdout.log" 2> "$OLDPWD/stderr.log")
    cat stdout.log stderr.log
    $(command -v python || command -v python3) own_parser.py stdout.log stderr.log output.json
    echo
    echo "{_MARK}"
    cat output.json
else
    bash tests.sh
fi
"""
_REPRODUCTION = f"""exec 2>&1
bash regression.sh
box=$PWD
cd "$1" || exit {_NOT_APPLIED}
for patch in "$box"/*.patch; do git apply -v "$patch" || exit {_NOT_APPLIED}; done
$(command -v python || command -v python3) "$2"
"""


class Instance(pydantic.BaseModel):
    """One issue of a repository, as far as it is run."""

    model_config = pydantic.ConfigDict(extra="allow")

    repo: str
    setup_script: str = ""
    test_script: str = ""
    regression_script: str = ""
    FAIL_TO_PASS: list[str]
    PASS_TO_PASS: list[str]
    patch: str = ""
    base_dir: Annotated[str, pydantic.AfterValidator(check_path)] = "/testbed"
    run_script: str | None = pydantic.Field(None, alias="run_script.sh")
    parsing_script: str | None = pydantic.Field(None, alias="parsing_script.py")

    @pydantic.field_validator("FAIL_TO_PASS", "PASS_TO_PASS", mode="before")
    @classmethod
    def _read_list(cls, names: Any) -> Any:
        return json.loads(names) if isinstance(names, str) else names


def instance_of(row_member: dict[str, Any]) -> Instance:
    """
    Raises:
        InvalidTask: something that is needed to run it is missing.
    """
    try:
        return Instance.model_validate(row_member)
    except pydantic.ValidationError as error:
        raise gymq.InvalidTask(f"row does not fit: instance.{first_problem(error)}") from None


class Containers:
    """Where repositories are, and how their scripts are run.

    Args:
        folder: of repositories by the name of the image, for a sandbox that has no container images.
        timeout_s: for one run.
    """

    def __init__(self, sandbox: Sandbox, options: SandboxOptions, folder: str | None, timeout_s: float) -> None:
        self._sandbox = sandbox
        self._folder = None if folder is None else Path(folder).resolve()
        self._limits = options.limits(
            Limits(
                time_s=timeout_s,
                memory_bytes=16 * GIB,
                processes=512,
                file_bytes=1 * GIB,
                disk_bytes=4 * GIB,
                output_bytes=16 * MIB,
            )
        )

    async def evaluate(self, instance: Instance, image: str, patch: str) -> Resolution:
        """Set up, apply the patch, test.

        Raises:
            TimeoutError: it took too long.
            SandboxFailed: nothing is known about the patch.
        """
        files = {"run.sh": _EVALUATION, "setup.sh": instance.setup_script, "tests.sh": instance.test_script}
        if instance.run_script is not None and instance.parsing_script is not None:
            files |= {"own_tests.sh": instance.run_script, "own_parser.py": instance.parsing_script}
        finished = await self._run(instance, image, files | {"model.patch": patch})
        log, mark, written = finished.stdout.decode(errors="replace").rpartition(_MARK)
        own = statuses_of_own_parser(written) if mark else None
        return resolution_of(log if mark else written, instance.repo, instance.FAIL_TO_PASS, instance.PASS_TO_PASS, own)

    async def exit_code(self, instance: Instance, image: str, patches: list[str], script: str) -> int:
        """Run the regression script, apply the patches, and run a script that they add.

        Raises:
            TimeoutError, SandboxFailed
        """
        files = {"run.sh": _REPRODUCTION, "regression.sh": instance.regression_script}
        files |= {f"{number}.patch": patch for number, patch in enumerate(patches)}
        return (await self._run(instance, image, files, script)).exit_status

    async def _run(self, instance: Instance, image: str, files: dict[str, str], *arguments: str) -> Finished:
        program = Program(
            ("bash", "run.sh", instance.base_dir, *arguments),
            files={name: text.encode(errors="replace") for name, text in files.items()},
            **self._repository(instance, image),
        )
        finished = await self._sandbox.run(program, self._limits)
        if finished.limit == "time":
            raise TimeoutError
        return finished

    def _repository(self, instance: Instance, image: str) -> dict[str, Any]:
        if self._folder is None:
            return {"image": image}
        if "\0" in image:
            raise gymq.InvalidTask(f"metadata.image: {image!r} holds a NUL; name a folder of {self._folder}")
        folder = (self._folder / image).resolve()
        if not folder.is_relative_to(self._folder) or not folder.is_dir():
            raise gymq.InvalidTask(f"metadata.image: there is no folder {image!r} in {self._folder}")
        return {"folders": {instance.base_dir: str(folder)}}
