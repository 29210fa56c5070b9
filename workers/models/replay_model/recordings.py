"""Recorded rollouts, found by the conversation before each model call.

Only fingerprints and places in files are kept in memory; a reply is read from its file when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from gymq.workers.models.replay_model.conversation import Item, beginning, continued, model_turns, text_of

from gymq.errors import GymqError
from gymq.protocol import token_forms
from gymq.protocol.decoding import UNDECODABLE
from gymq.responses import ResponsesError, user_message, validate_params, validate_response

_MAX_EXCERPT = 160  # characters of an item in a message


class BadRecording(GymqError, ValueError):
    """A line is not a recording; the error names file, line and path."""


class NotRecorded(GymqError, LookupError):
    """The recordings have no answer to this conversation; the error names where it diverges."""


class _Asked(msgspec.Struct):
    input: str | list[dict[str, Any]]
    instructions: str | None = None

    @property
    def items(self) -> list[Item]:
        return [user_message(self.input)] if isinstance(self.input, str) else self.input


class _Line(msgspec.Struct):
    response: dict[str, Any]
    responses_create_params: _Asked | None = None
    request: _Asked | None = None
    task_index: int = msgspec.field(default=0, name="_ng_task_index")
    rollout_index: int = msgspec.field(default=0, name="_ng_rollout_index")

    def __post_init__(self) -> None:
        if (self.request is None) == (self.responses_create_params is None):
            raise ValueError("expected either `responses_create_params` or `request` beside `response`")
        self.response = token_forms.with_whole_prompts(self.response)

    @property
    def asked(self) -> _Asked:
        return self.request or self.responses_create_params  # type: ignore[return-value]

    @property
    def conversation(self) -> list[Item]:
        return [*self.asked.items, *self.response["output"]]


@dataclass(slots=True, eq=False)
class _Recording:
    file: BinaryIO
    offset: int
    num_bytes: int
    order: tuple[int, int]
    rank: int = 0  # among the recordings of the same prompt
    num_siblings: int = 1  # how many these are

    def distance(self, rollout_index: int) -> int:
        """Return how far behind the recording that is this rollout's own turn."""
        return (self.rank - rollout_index) % self.num_siblings


_decode = msgspec.json.Decoder(_Line).decode


class Recordings:
    """The recordings in some JSONL files."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read the files once.

        Raises:
            BadRecording: a line is neither an output row of a run nor an object with `request` and `response`.
            OSError: a file cannot be read.
        """
        self._files: list[BinaryIO] = []
        self._turns: dict[bytes, list[tuple[_Recording, int]]] = {}
        self._passed: dict[bytes, _Recording] = {}  # for each beginning one recording that begins so
        prompts: dict[bytes, list[_Recording]] = {}
        try:
            for path in paths:
                self._read(path, prompts)
        except BaseException:
            self.close()
            raise
        for siblings in prompts.values():
            siblings.sort(key=lambda recording: recording.order)
            for rank, recording in enumerate(siblings):
                recording.rank, recording.num_siblings = rank, len(siblings)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def reply(self, params: dict[str, Any], rollout_index: int) -> dict[str, Any]:
        """Return the Responses object that was recorded for this conversation.

        Recordings of one prompt take turns: rollout n gets number n modulo their count. Where the conversation is not
        that recording's, the next one in turn that agrees with it answers.

        Raises:
            NotRecorded: naming the first item that is in no recording.
        """
        fingerprint = beginning(params.get("instructions"))
        if fingerprint not in self._passed:
            raise NotRecorded("no recording has these instructions")
        for position, item in enumerate(params["input"]):
            known, fingerprint = fingerprint, continued(fingerprint, item)
            if fingerprint not in self._passed:
                raise NotRecorded(f"input[{position}] {_excerpt(item)} {self._instead(known, position)}")
        turns = self._turns.get(fingerprint)
        if turns is None:
            position = len(params["input"])
            raise NotRecorded(f"a model call after input[{position - 1}] {self._instead(fingerprint, position)}")
        recording, number = min(turns, key=lambda turn: turn[0].distance(rollout_index))
        return _turn(self._load(recording).response, number)

    def _read(self, path: Path, prompts: dict[bytes, list[_Recording]]) -> None:
        file = path.open("rb")
        self._files.append(file)
        offset = 0
        for number, line in enumerate(file, 1):
            try:
                parsed = _decode(line)
                validate_params({"input": parsed.asked.input})
                validate_response(parsed.response)
            except (ResponsesError, *UNDECODABLE) as error:
                raise BadRecording(f"{path}:{number}: {error}") from None
            order = (parsed.task_index, parsed.rollout_index)
            self._add(_Recording(file, offset, len(line), order), parsed, prompts)
            offset += len(line)

    def _add(self, recording: _Recording, line: _Line, prompts: dict[bytes, list[_Recording]]) -> None:
        fingerprint = beginning(line.asked.instructions)
        self._passed.setdefault(fingerprint, recording)
        for item in line.asked.items:
            fingerprint = continued(fingerprint, item)
            self._passed.setdefault(fingerprint, recording)
        prompts.setdefault(fingerprint, []).append(recording)

        output = line.response["output"]
        starts = {start: number for number, (start, _) in enumerate(model_turns(output))}
        for position, item in enumerate(output):
            if position in starts:
                self._turns.setdefault(fingerprint, []).append((recording, starts[position]))
            fingerprint = continued(fingerprint, item)
            self._passed.setdefault(fingerprint, recording)

    def _load(self, recording: _Recording) -> _Line:
        return _decode(os.pread(recording.file.fileno(), recording.num_bytes, recording.offset))

    def _instead(self, fingerprint: bytes, position: int) -> str:
        """Return what a recording that agrees up to here has at this place."""
        recorded = self._load(self._passed[fingerprint]).conversation
        if position < len(recorded):
            return f"is in no recording; recorded was for example {_excerpt(recorded[position])}"
        return "is in no recording; those that agree so far end before it"


def _turn(response: dict[str, Any], number: int) -> dict[str, Any]:
    """Return one model call of a recorded rollout. The rollout's usage and end come with its last call."""
    output = response["output"]
    turns = model_turns(output)
    start, stop = turns[number]
    if number == len(turns) - 1:
        return {**response, "output": output[start:stop]}
    return {
        **response,
        "output": output[start:stop],
        "status": "completed",
        "incomplete_details": None,
        "usage": None,
    }


def _excerpt(item: Item) -> str:
    text = text_of(item)
    return text if len(text) <= _MAX_EXCERPT else f"{text[:_MAX_EXCERPT]}..."
