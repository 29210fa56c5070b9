"""A stored run as a data set for supervised fine-tuning, or of preferences, in the conversational form of TRL."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from gymq.data.failure_status import StatusError
from gymq.data.jsonl import JsonlError, parse_object
from gymq.data.trainer_results import check_verdict, is_masked
from gymq.defaults import PASS_THRESHOLD
from gymq.protocol.messages import Outcome, VerifiedRollout
from gymq.responses import ResponsesError, responses_to_chat
from gymq.runs.export.files import ConvertedFile
from gymq.runs.foreign.rollout import plain_message
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
        # By task: the completions that wait, all of one side, and whether they passed.
        self._waiting: dict[int, tuple[bool, list[bytes]]] = {}

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
        others_passed, others = self._waiting.get(task_index, (passed, []))
        if others_passed == passed:
            if len(others) < MAX_WAITING:
                self._waiting[task_index] = (passed, [*others, msgspec.json.encode(example.completion)])
            return
        other = msgspec.Raw(others.pop(0))
        if not others:
            del self._waiting[task_index]
        chosen, rejected = (example.completion, other) if passed else (other, example.completion)
        self._write({"prompt": example.prompt, "chosen": chosen, "rejected": rejected, **example.tools})

    def _write(self, example: dict[str, Any]) -> None:
        self._put(msgspec.json.encode(example))


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
