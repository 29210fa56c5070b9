"""What a collection is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gymq.data.materialise import MaterialiseOptions
from gymq.data.run_changes import RecordedInstance
from gymq.defaults import DEFAULT_WINDOW, TokenForm
from gymq.execution.loading.worker_source import instance_name
from gymq.protocol.messages import Priority
from gymq.runs.collection.failure_limit import MaxFailures


class Wording(NamedTuple):
    """How messages write options, settings, another start, and what to do about rows without a prompt."""

    overwrite: str = "--overwrite"
    output: str = "--output"
    more_repeats: str = "--num-repeats"
    max_failures: str = "--max-failures"
    num_repeats: str = "num_repeats"
    again: str = "the same command"
    name_prompt: str = "; pass --prompt-field NAME, or --prompt-config FILE for a template"


ON_COMMAND_LINE = Wording()
IN_PYTHON = Wording(
    "overwrite=True", "output", "repeats=", "max_failures=", "repeats", "the same call", "; pass prompt_field=NAME"
)


@dataclass(frozen=True)
class CollectOptions:
    """Input, output and settings of a collection."""

    input: Path
    output: Path
    materialise: MaterialiseOptions
    window: int = DEFAULT_WINDOW
    rollout_timeout_s: float = 3600.0
    config_digest: str = ""
    config: dict[str, RecordedInstance] = field(default_factory=dict)  # the workers, where they are configured here
    score_with: list[str] = field(default_factory=list)  # options that name the verifiers to `gymq score`
    overwrite: bool = False
    strict_rows: bool = False  # a row that cannot be used refuses the whole input
    max_failures: MaxFailures | None = None  # None: see `FailureLimit`
    share: float | None = None  # of the workers, relative to other runs; None: as it is stored, or 1
    priority: Priority | None = None  # None: as it is stored, or normal
    max_staleness: int | None = None  # updates of the policy while a rollout is made
    token_ids: TokenForm = "full"  # in the files
    rows_of_a_list: bool = False  # the input has the rows of a list in Python
    wording: Wording = ON_COMMAND_LINE

    def given(self) -> dict[str, Any]:
        """Return the options that describe the run, without those at their default of None."""
        limits = {
            "concurrency": self.window,
            "timeout_s": self.rollout_timeout_s,
            "max_failures": None if self.max_failures is None else str(self.max_failures),
            "max_staleness": self.max_staleness,
            "priority": self.priority,
            "strict_rows": self.strict_rows or None,
        }
        files = {"input": str(self.input), "output": str(self.output)}
        fields = files | self.settings() | limits
        return {name: value for name, value in fields.items() if value is not None}

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the rows of the run, as its manifest keeps them."""
        settings: dict[str, Any] = msgspec.to_builtins(self.materialise.model_dump(mode="json"))
        return settings | {"limit": settings["limit"] or None}


def default_output(input: Path, config: Sequence[Path], resources: Path | None, model: str | None) -> Path:
    """Return the output of a collection that names none: the same for the same data set, workers and model."""
    workers = [path.resolve().parent.name if path.stem == "config" else path.stem for path in config]
    workers += [] if resources is None else [instance_name(resources)]
    names = [*workers, input.name.partition(".")[0], *([] if model is None else [model])]
    parts = ("".join(letter if letter.isalnum() or letter in "_." else "-" for letter in name) for name in names)
    stem = "-".join(dict.fromkeys(part.strip("-.") for part in parts if part.strip("-.")))
    return Path("runs") / f"{stem[:150] or 'run'}.jsonl"
