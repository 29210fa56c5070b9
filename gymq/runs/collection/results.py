"""The result of a run, read from its files: ours, and those that NeMo Gym writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymq import responses
from gymq.data.jsonl import JsonlFile, LineSource, numbered_lines
from gymq.data.resume import FailureGroup, Resume
from gymq.data.rows import FAILURE_CLASS, FAILURE_MESSAGE, ROLLOUT_INDEX, TASK_INDEX, decode_line
from gymq.data.run_files import RunFiles
from gymq.defaults import PASS_THRESHOLD
from gymq.responses import content_text, user_contents
from gymq.runs.outcome_fields import as_object, expected_of, objects, params_of, prompt_of
from gymq.stats.files import read_statistics
from gymq.stats.intervals import Estimate
from gymq.stats.running import AgentSnapshot

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

_ALL = "all"
_NOT_COLUMNS = frozenset({"responses_create_params", "response", "agent_ref"})


class RunResult:
    """The rollouts of one run and what they come to. The files are read when something is asked for.

    Attributes:
        path: the file of the rollouts.
    """

    def __init__(self, path: str | Path, *, pass_threshold: float = PASS_THRESHOLD) -> None:
        """Open the results of a run.

        Args:
            path: the JSONL file of the rollouts; the other files of the run, if there are any, are beside it.
            pass_threshold: smallest reward with which a rollout passes.

        Raises:
            ValueError: the threshold is no number.
        """
        if not hasattr(pass_threshold, "__float__"):
            raise ValueError(f"pass_threshold: must be a number, not {pass_threshold!r}")
        self.path = Path(path)
        self._files = RunFiles(self.path)
        self._pass_threshold = pass_threshold

    @property
    def rollouts(self) -> Iterator[dict[str, Any]]:
        """The rollouts that have a reward, one after the other as they were stored.

        Raises:
            RowError, JsonlError: a line cannot be read; the message names it.
        """
        return _records(JsonlFile(self._files.output))

    @cached_property
    def failures(self) -> list[FailureGroup]:
        """The rollouts without a result, by the class of their failure, the largest group first."""
        if not self._files.materialised.exists():
            return []
        failed = JsonlFile(self._files.failures)
        with Resume(JsonlFile(self._files.materialised), JsonlFile(self._files.output), failed) as resume:
            return resume.failed(failed)

    @cached_property
    def statistics(self) -> AgentSnapshot | None:
        """All statistics, the agents of the run taken together; None without rollouts."""
        statistics = read_statistics(self._files, pass_threshold=self._pass_threshold, pooled=_ALL)
        return statistics.profile.snapshot().agents.get(_ALL)

    @property
    def reward(self) -> Estimate | None:
        """Mean reward with its 95 % confidence interval; None if no rollout has a reward."""
        return None if self.statistics is None else self.statistics.mean_reward

    @property
    def pass_at_k(self) -> dict[int, Estimate]:
        """pass@k in percent with its confidence interval, by the k that every task has so many rewards for."""
        return {} if self.statistics is None else self.statistics.pass_at_k_of_all()

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a line for each rollout, those that failed included.

        The columns are task, rollout, prompt, reply, expected, reward, failure, failure_message, input_tokens and
        output_tokens, then the plain values (texts, numbers, flags) of row and verdict.

        Raises:
            ImportError: pandas is not installed.
            RowError, JsonlError: a line of the files cannot be read; the message names it.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("a data frame needs pandas, which is not installed: pip install pandas") from None
        done = [_columns(record) for record in self.rollouts]
        keys = {(line["task"], line["rollout"]) for line in done}
        failed = {}
        for record in _records(JsonlFile(self._files.failures)) if self._files.failures.exists() else ():
            line = _columns(record)
            if line["task"] is not None and (line["task"], line["rollout"]) not in keys:
                failed[line["task"], line["rollout"]] = line
        frame = pandas.DataFrame([*done, *failed.values()], columns=None if done or failed else list(_columns({})))
        return frame.sort_values(["task", "rollout"], ignore_index=True)

    def __repr__(self) -> str:
        statistics = self.statistics
        done = 0 if statistics is None else statistics.rollouts
        parts = [f"rollouts={done}", f"reward={_shown(self.reward)}"]
        parts += [f"pass@{k}={_shown(estimate, '%')}" for k, estimate in self.pass_at_k.items()]
        failed = sum(group.num_rollouts for group in self.failures)
        return f"RunResult({str(self.path)!r}, {', '.join([*parts, f'failed={failed}'])})"

    def _repr_html_(self) -> str:
        """Return tables for a notebook. Text of models and rows is never interpreted as markup."""
        statistics = self.statistics
        figures = [("mean reward", _shown(self.reward))]
        if statistics is not None and statistics.failures:
            figures.append(("of", f"{statistics.rollouts} of {statistics.rollouts + statistics.num_failed} rollouts"))
        if statistics is not None and statistics.lower_bound is not None:
            figures.append(("with the failed ones as 0", f"{statistics.lower_bound:.3f}"))
        figures += [(f"pass@{k}", _shown(estimate, "%")) for k, estimate in self.pass_at_k.items()]
        parts = [f"<p><b>{escape(str(self.path))}</b></p>", _table(["", "value"], figures)]
        if self.failures:
            lines = [(group.failure_class, group.num_rollouts, group.message) for group in self.failures]
            parts.append(_table(["failure", "rollouts", "for example"], lines))
        shown = [_columns(record) for record, _ in zip(self.rollouts, range(10), strict=False)]
        names = ["task", "rollout", "prompt", "reply", "expected", "reward"]
        if shown:
            parts.append(_table(names, [[line[name] for name in names] for line in shown]))
        return "".join(parts)


def load(path: str | Path, *, pass_threshold: float = PASS_THRESHOLD) -> RunResult:
    """Return the result of a run that was stored, by `gymq collect`, `gymq.collect` or NeMo Gym.

    Args:
        path: the file of its rollouts, JSONL.
        pass_threshold: smallest reward with which a rollout passes.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the threshold is no number.
    """
    if not Path(path).is_file() and not RunFiles(Path(path)).manifest.is_file():
        raise FileNotFoundError(f"{path}: file not found; give the rollouts file of a run")
    return RunResult(path, pass_threshold=pass_threshold)


def _records(lines: LineSource) -> Iterator[dict[str, Any]]:
    return (decode_line(line, dict[str, Any], where) for _, where, line in numbered_lines(lines))


def _columns(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rollout as plain columns; what is not of the usual form, as in a row that failed for it, has none."""
    response = as_object(record.get("response"))
    usage, output = as_object(response.get("usage")), response.get("output")
    asked = user_contents({"input": prompt_of(params_of(record, {}))})
    columns = {
        "task": _number(record.get(TASK_INDEX)),
        "rollout": _number(record.get(ROLLOUT_INDEX)),
        "prompt": "\n".join(filter(None, map(content_text, asked))),
        "reply": responses.last_assistant_text({"output": objects(output)}) if isinstance(output, list) else None,
        "expected": next(iter(expected_of(record, {}).values()), None),
        "reward": record.get("reward"),
        "failure": record.get(FAILURE_CLASS),
        "failure_message": record.get(FAILURE_MESSAGE),
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
    }
    more = {name: value for name, value in record.items() if name not in _NOT_COLUMNS and not name.startswith("_ng_")}
    plain = {name: value for name, value in more.items() if isinstance(value, str | int | float | bool)}
    return columns | {name: value for name, value in plain.items() if name not in columns}


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _shown(estimate: Estimate | None, unit: str = "") -> str:
    if estimate is None:
        return "-"
    digits = 1 if unit else 3
    text = f"{estimate.value:.{digits}f}{unit}"
    if estimate.interval is None:
        return text
    return f"{text} [{estimate.interval.low:.{digits}f}, {estimate.interval.high:.{digits}f}]"


def _table(names: list[str], lines: list[Any]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in line)}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return escape(text if len(text) <= 200 else f"{text[:200]}...")
