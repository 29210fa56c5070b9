"""A stored run as a data set for supervised fine-tuning, or of preferences, in the conversational form of TRL."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from gymq.data.disk_index import TemporaryDatabase
from gymq.data.failure_status import StatusError
from gymq.data.jsonl import JsonlError, parse_object
from gymq.data.trainer_results import check_verdict, is_masked
from gymq.defaults import PASS_THRESHOLD
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.ext.formats.converted import ConvertedFile
from gymq.ext.rollout_files.rollout import plain_message
from gymq.protocol.messages import Outcome, VerifiedRollout
from gymq.responses import ResponsesError
from gymq.runs.outcome_fields import params_of

TrainingSet = Literal["sft", "dpo"]

MAX_WAITING = 8  # completions of a task that wait for their counterpart


class TrainingSetFile(ConvertedFile):
    """Writes the rollouts of a run as training examples. Use it as a context manager.

    `sft`: each rollout that passes, as `messages`. `dpo`: pairs of a rollout that passes and one of the same task that
    does not, as `prompt`, `chosen` and `rejected`; each rollout is in one pair at most. Both have `tools` if the model
    was offered some.

    Attributes:
        num_written: examples so far.
        num_left_out: rollouts that have no chat form or no usable verdict, or that are masked.
        num_passed: rollouts with a reward of `min_reward` or more.
        num_rewarded: rollouts with a reward.
    """

    def __init__(self, output: Path, form: TrainingSet, min_reward: float = PASS_THRESHOLD) -> None:
        """Create the file.

        Args:
            min_reward: smallest reward of a rollout that passes.
        """
        super().__init__(output)
        self._form = form
        self._min_reward = min_reward
        self.num_passed = self.num_rewarded = 0
        # By task: whether the completions that wait passed, and the numbers of the first one and behind the last one.
        self._waiting: dict[int, tuple[bool, int, int]] = {}
        self._completions = _Completions()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._completions.close()
        super().__exit__(kind, error, traceback)

    def add(self, outcome: Outcome) -> None:
        """Add an outcome; failures and, for `sft`, rollouts that do not pass are not written."""
        if not isinstance(outcome, VerifiedRollout):
            return
        passed = outcome.reward >= self._min_reward
        self.num_rewarded += 1
        self.num_passed += passed
        if self._form == "sft" and not passed:
            return
        try:
            check_verdict(outcome)
            example = None if is_masked(outcome) else _Example(outcome)
        except (JsonlError, ResponsesError, StatusError):
            example = None
        if example is None or not example.completion:
            self.num_left_out += 1
        elif self._form == "sft":
            self._write({"messages": [*example.prompt, *example.completion], **example.tools})
        else:
            self._pair(outcome.task_index, passed, example)

    def _pair(self, task_index: int, passed: bool, example: _Example) -> None:
        others_passed, first, behind = self._waiting.get(task_index, (passed, 0, 0))
        if others_passed == passed:
            if behind - first < MAX_WAITING:
                self._completions.put(task_index, behind, msgspec.json.encode(example.completion))
                self._waiting[task_index] = (passed, first, behind + 1)
            return
        other = msgspec.Raw(self._completions.take(task_index, first))
        self._waiting[task_index] = (others_passed, first + 1, behind)
        if first + 1 == behind:
            del self._waiting[task_index]
        chosen, rejected = (example.completion, other) if passed else (other, example.completion)
        self._write({"prompt": example.prompt, "chosen": chosen, "rejected": rejected, **example.tools})

    def _write(self, example: dict[str, Any]) -> None:
        self._put(msgspec.json.encode(example))


class _Completions(TemporaryDatabase):
    """Completions as JSON text, on disk."""

    def __init__(self) -> None:
        super().__init__("completions (task INTEGER, number INTEGER, text BLOB, PRIMARY KEY (task, number))")

    def put(self, task_index: int, number: int, text: bytes) -> None:
        self._execute("INSERT INTO completions VALUES (?, ?, ?)", (task_index, number, text))

    def take(self, task_index: int, number: int) -> bytes:
        """Return a completion, and remove it."""
        at = (task_index, number)
        text: bytes = self._row("SELECT text FROM completions WHERE task = ? AND number = ?", *at)[0]
        self._execute("DELETE FROM completions WHERE task = ? AND number = ?", at)
        return text


class _Example:
    """A rollout as chat messages: the prompt, and what the model and its tools made of it."""

    def __init__(self, outcome: VerifiedRollout) -> None:
        """Convert a rollout.

        Raises:
            JsonlError, ResponsesError: its row, or one of its items, has no chat form.
        """
        row: dict[str, Any] = msgspec.json.decode(outcome.row) if parse_object(outcome.row) else {}
        params = params_of(row, outcome.verdict)
        tools = [tool for tool in params.get("tools") or () if isinstance(tool, dict)]
        said: dict[str, Any] = {name: params[name] for name in ("input", "instructions") if name in params}
        asked = responses_to_chat({"input": [], **said, "tools": tools})
        self.prompt = [plain_message(message) for message in asked["messages"]]
        self.tools = {"tools": asked["tools"]} if "tools" in asked else {}
        answered = responses_to_chat({"input": outcome.response["output"]})
        self.completion = [plain_message(message) for message in answered["messages"]]
