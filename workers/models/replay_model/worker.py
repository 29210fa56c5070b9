"""Serves recorded completions: the same conversation gets the reply that a model once gave."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pydantic
from gymq.workers.models.replay_model.recordings import BadRecording, NotRecorded, Recordings

import gymq
from gymq.protocol.subjects import RolloutId
from gymq.workers import located


class ReplayModel(gymq.Model):
    """Answers from recordings, and fails where there is none. It never makes anything up."""

    class Options(gymq.WorkerOptions):
        recordings: list[Path] = pydantic.Field(min_length=1)  # JSONL files

        @pydantic.field_validator("recordings", mode="before")
        @classmethod
        def _one_is_a_list(cls, value: Any) -> Any:
            return [value] if isinstance(value, str) else value

    async def start(self) -> None:
        """Reads the recordings.

        Raises:
            OptionsError: a file cannot be read or a line is not a recording.
        """
        try:
            files = [located(file) for file in self.options.recordings]
            self._recordings = await asyncio.to_thread(Recordings, files)
        except BadRecording as error:
            raise gymq.OptionsError(f"{self.name}: recordings: {error}") from None
        except OSError as error:
            raise gymq.OptionsError(f"{self.name}: recordings: {error.filename}: {error.strerror}") from None

    async def stop(self) -> None:
        self._recordings.close()

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        try:
            return self._recordings.reply(request.params, _rollout_index(request.rollout))
        except NotRecorded as error:
            raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, f"replay: {error}", retryable=False) from None


def _rollout_index(rollout: str) -> int:
    """Return the index in `run/task/rollout`; 0 for a call outside of any rollout."""
    found = RolloutId.parse(rollout)
    return 0 if found is None else found.rollout_index
