"""Runs an instance's scripts in a sandbox, over a fresh copy of its repository."""

from __future__ import annotations

import json
import secrets
from typing import Annotated, Any, NamedTuple

import pydantic
from gymq.workers.resources.swerl_gen.reproduction import decoys_of

import gymq
from gymq.authoring import first_problem
from gymq.sandbox import GIB, MIB, Limits, Program, ProgramResult, Sandbox, SandboxOptions, check_path
from gymq.workers import located

_NOT_APPLIED, _NOT_ALIKE = 120, 121  # exit status; scripts say 0, 1 or 2

# Before code runs that the policy wrote, scripts are in the memory of bash, and they and what they were given are gone.
_EVALUATION = """{
exec 4>&2 2>&1
bash setup.sh
box=$PWD
number=0
(
    cd "$1" || exit
    while IFS= read -r path; do
        mkdir -p "$(dirname "./$path")" && cat "$box/file.$number" > "./$path" || exit
        number=$((number + 1))
    done < "$box/paths"
    echo "Applied patch"
)
read -r mark < mark
exec 3< tests.sh
if [ -e apart ]; then cd "$1"; exec 2>&4; fi
rm -f "$box"/{run.sh,setup.sh,tests.sh,paths,mark,apart} "$box"/file.*
unset OLDPWD box
echo "$mark"
exec bash -c 'script=$(cat <&3 && echo .); exec 3<&- 4>&-; eval "${script%.}"' tests.sh
}
"""
_PARSING = """python=$(command -v python || command -v python3)
"$python" own_parser.py stdout.log stderr.log output.json > parser.log 2>&1
cat output.json
"""
_REPRODUCTION = f"""{{
exec 2>&1
bash regression.sh
box=$PWD
cd "$1" || exit {_NOT_APPLIED}
if [ -s "$box/reference.patch" ]; then git apply -v "$box/reference.patch" || exit {_NOT_APPLIED}; fi
cat "$box/script.py" > "$2" || exit {_NOT_APPLIED}
number=0
while IFS= read -r path; do
    [ -s "$path" ] && cat "$box/decoy.$number" >> "$path"
    number=$((number + 1))
done < "$box/decoys"
if [ -e "$box/alike" ]; then
    find . -mindepth 1 \\( -name .git -o -name __pycache__ \\) -prune -o -print0 | LC_ALL=C sort -z > "$box/names" &&
    tar -cf "$box/all.tar" --null --no-recursion --mtime=2020-01-01T00:00Z -T "$box/names" &&
    find . -mindepth 1 -delete && tar -xpf "$box/all.tar" --no-same-owner || exit {_NOT_ALIKE}
fi
rm -f "$box"/{{run.sh,regression.sh,reference.patch,script.py,decoys,alike,names,all.tar}} "$box"/decoy.*
unset OLDPWD box
exec "$(command -v python || command -v python3)" "$2"
}}
"""


class Logs(NamedTuple):
    """What an evaluation wrote."""

    log: str  # of the setup, of applying the edits and of the tests
    own: str | None  # what the instance's own parser wrote, if it has one


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
    """Read the instance of a row.

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
        alike: whether in a reproduction nothing but the reference patch's own changes differs between both runs.
    """

    def __init__(
        self, sandbox: Sandbox, options: SandboxOptions, folder: str | None, timeout_s: float, *, alike: bool
    ) -> None:
        self._sandbox = sandbox
        self._folder = None if folder is None else located(folder).resolve()
        self._alike = alike
        self._limits = options.limits(
            Limits(
                time_s=timeout_s,
                memory_bytes=16 * GIB,
                processes=512,
                file_bytes=1 * GIB,
                disk_bytes=4 * GIB,
                disk_files=500_000,
                output_bytes=16 * MIB,
            )
        )

    async def evaluate(self, instance: Instance, image: str, edited: dict[str, str]) -> Logs:
        """Set up, write the edited files, test.

        Args:
            edited: contents by path in the repository.

        Raises:
            TimeoutError: it took too long.
            ComponentFailed: nothing is known about the edits.
        """
        mark = secrets.token_hex(16)
        files = {"run.sh": _EVALUATION, "setup.sh": instance.setup_script, "mark": f"{mark}\n"}
        files |= {f"file.{number}": text for number, text in enumerate(edited.values())}
        files["paths"] = "".join(f"{path}\n" for path in edited)
        if instance.run_script is None or instance.parsing_script is None:
            finished = await self._run(instance, image, files | {"tests.sh": instance.test_script})
            return Logs(_text(finished.stdout).replace(mark, "", 1), None)
        files |= {"tests.sh": instance.run_script, "apart": ""}
        finished = await self._run(instance, image, files)
        before, _, stdout = _text(finished.stdout).partition(f"{mark}\n")
        stderr = _text(finished.stderr)
        logs = {"stdout.log": stdout, "stderr.log": stderr, "own_parser.py": instance.parsing_script}
        try:
            parsed = await self._run(instance, image, {"run.sh": _PARSING, **logs})
        except TimeoutError:
            raise gymq.ComponentFailed("instance.parsing_script.py: it did not end in time; nothing is known") from None
        return Logs(before + stdout + stderr, _text(parsed.stdout))

    async def exit_code(self, instance: Instance, image: str, name: str, script: str, solved: bool) -> int:
        """Run the regression script, and a script of the policy in the repository.

        Args:
            name: of the script's file.
            solved: with the reference patch.

        Raises:
            TimeoutError, gymq.ComponentFailed
        """
        files = {"run.sh": _REPRODUCTION, "regression.sh": instance.regression_script, "script.py": script + "\n"}
        files |= {"reference.patch": instance.patch if solved else "", "decoys": ""}
        if self._alike:
            decoys = decoys_of(instance.patch, solved)
            files |= {"alike": "", "decoys": "".join(f"{path}\n" for path in decoys)}
            files |= {f"decoy.{number}": text for number, text in enumerate(decoys.values())}
        finished = await self._run(instance, image, files, name)
        if finished.exit_status == _NOT_ALIKE:
            text = "the repository could not be packed and unpacked"
            raise gymq.ComponentFailed(f"{text}: give the image GNU tar, find and sort, or set `hardened: false`")
        return finished.exit_status

    async def _run(self, instance: Instance, image: str, files: dict[str, str], *arguments: str) -> ProgramResult:
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
            raise gymq.InvalidTask(f"metadata.image: the folder {image!r} does not exist in {self._folder}")
        return {"folders": {instance.base_dir: str(folder)}}


def may_be_written(path: str) -> bool:
    """Return whether a path, which the policy chose, lies in the repository and outside of its history."""
    parts = path.split("/")
    return "\0" not in path and not any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)


def _text(output: bytes) -> str:
    return output.decode(errors="replace")
