"""A stored run as one table in Parquet, one row an outcome: for notebooks, for Hugging Face datasets, for training."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gymq.data.disk_index import DoneRollouts
from gymq.data.jsonl import JsonlError, parse_object
from gymq.data.rows import PARAMS, attempt_index
from gymq.errors import UsageError
from gymq.protocol.messages import Failure, Outcome, VerifiedRollout
from gymq.protocol.tokens import TOKEN_FIELDS, to_json
from gymq.redaction import redact

TOKENS_AT_ONCE = 1 << 20  # the same; a rollout of many calls has as many prompts

_JSON_COLUMNS = ("row", "params", "output", "usage", "verdict")
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class RunTableFile:
    """Writes outcomes into a Parquet file, which is there once all are in it. Use it as a context manager.

    Columns: run, task_index, rollout_index, attempt, agent, policy_versions, started_at, duration_s; reward,
    failure_class, message (one of reward and failure_class is null); as JSON text row, params, output (without tokens),
    usage and verdict; and for each output item with tokens one entry in prompt_token_ids, generation_token_ids and
    generation_log_probs.
    """

    def __init__(self, path: Path, *, redacted: bool = False) -> None:
        """Create the file.

        Args:
            path: the file to write.
            redacted: whether the file leaves this machine; texts in it are then passed through `redact`.

        Raises:
            UsageError: pyarrow is not installed, or the file cannot be created.
        """
        try:
            import pyarrow  # type: ignore[import-untyped]
            from pyarrow import parquet
        except ImportError:
            raise UsageError(f'{path}: writing this needs pyarrow: pip install "gymq[datasets]"') from None
        self._path = path
        self._redacted = redacted
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        self._schema = _schema(pyarrow)
        self._table = pyarrow.Table
        self._rows: list[dict[str, Any]] = []
        self._num_tokens = 0  # in them
        self._known = DoneRollouts()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(self._unfinished, self._schema, compression="zstd")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush()
        finally:
            self._known.close()
            self._writer.close()
            if error is None:
                os.replace(self._unfinished, self._path)
            else:
                self._unfinished.unlink(missing_ok=True)

    def add(self, outcome: Outcome) -> None:
        """Add an outcome, unless it follows the failure that it replaced while they were read."""
        if not self._known.add(outcome.task_index, outcome.rollout_index):
            return
        row = _row(outcome)
        self._rows.append(_without_secrets(row) if self._redacted else row)
        self._num_tokens += sum(len(values) for name in TOKEN_FIELDS for values in row[name])
        if len(self._rows) == 256 or self._num_tokens >= TOKENS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(self._table.from_pylist(self._rows, schema=self._schema))
        self._rows.clear()
        self._num_tokens = 0


def _schema(pyarrow: Any) -> Any:
    text, number = pyarrow.string(), pyarrow.int64()
    ids, log_probs = (pyarrow.list_(pyarrow.list_(kind)) for kind in (pyarrow.int32(), pyarrow.float64()))
    return pyarrow.schema(
        [
            *((name, text) for name in ("run", "agent")),
            *((name, number) for name in ("task_index", "rollout_index", "attempt")),
            ("policy_versions", pyarrow.list_(text)),
            *((name, pyarrow.float64()) for name in ("started_at", "duration_s", "reward")),
            *((name, text) for name in ("failure_class", "message", "row", "params", "output", "usage", "verdict")),
            *((name, log_probs if name.endswith("log_probs") else ids) for name in TOKEN_FIELDS),
        ]
    )


def _row(outcome: Outcome) -> dict[str, Any]:
    response = {} if isinstance(outcome, Failure) else outcome.response
    items = [item for item in response.get("output") or () if isinstance(item, dict)]
    with_tokens = [item for item in items if item.get("generation_token_ids") is not None]
    try:
        row = dict(parse_object(outcome.row))
        params = bytes(row.pop(PARAMS, b"null")).decode()
        rest = to_json(row).decode()
    except (JsonlError, UnicodeDecodeError):  # a failed row was never checked
        params, rest = None, outcome.row.decode("utf-8", "backslashreplace")
    kept = [{name: value for name, value in item.items() if name not in TOKEN_FIELDS} for item in items]
    return {
        "run": outcome.run,
        "agent": outcome.agent,
        "task_index": outcome.task_index,
        "rollout_index": outcome.rollout_index,
        "attempt": attempt_index(outcome.row, outcome.attempt),
        "policy_versions": outcome.policy_versions,
        "started_at": outcome.started_at,
        "duration_s": outcome.duration_s,
        "reward": outcome.reward if isinstance(outcome, VerifiedRollout) else None,
        "failure_class": None if isinstance(outcome, VerifiedRollout) else str(outcome.failure_class),
        "message": None if isinstance(outcome, VerifiedRollout) else outcome.message,
        "row": rest,
        "params": params,
        "output": to_json(kept).decode(),
        "usage": to_json(response.get("usage")).decode(),
        "verdict": to_json(outcome.verdict).decode() if isinstance(outcome, VerifiedRollout) else None,
        **{name: [list(item.get(name) or ()) for item in with_tokens] for name in TOKEN_FIELDS},
    }


def _without_secrets(row: dict[str, Any]) -> dict[str, Any]:
    is_json = row["params"] is not None
    hide = dict.fromkeys(_JSON_COLUMNS, _redact_json) | {"message": redact} | ({} if is_json else {"row": redact})
    return row | {name: hidden(row[name]) for name, hidden in hide.items() if row[name] is not None}


def _redact_json(text: str) -> str:
    """Redact the strings in JSON text. All else stays as it was: numbers keep their digits."""
    return _JSON_STRING.sub(_redact_string, text)


def _redact_string(string: re.Match[str]) -> str:
    literal = string[0]
    text = json.loads(literal, strict=False) if "\\" in literal else literal[1:-1]
    redacted = redact(text)
    return literal if redacted == text else json.dumps(redacted)
