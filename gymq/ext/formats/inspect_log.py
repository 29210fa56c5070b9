"""Logs of Inspect, `.eval` and `.json`: https://inspect.aisi.org.uk/eval-logs.html.

A `.eval` file is a zip archive with one JSON file a sample, deflated or compressed with Zstandard.
"""

from __future__ import annotations

import copy
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

import zstandard

from gymq.data.jsonl import JsonlError
from gymq.ext.rollout_files.files import Format
from gymq.ext.rollout_files.rollout import ForeignRollout, number, read_at, split_chat

_HEADERS = ("header.json", "_journal/start.json")
_SAMPLES = "samples/"
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
MAX_SAMPLE_BYTES = 512 << 20
_ZSTANDARD = 93  # the number of the method in the format of zip archives
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTANDARD}


def is_inspect(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("eval"), dict) and "task" in value["eval"] and "version" in value


def read_inspect(path: Path) -> Iterator[bytes]:
    """Yield the rollouts of a log as lines of a result file, each sample's epochs under one task.

    Raises:
        JsonlError: it is not a log, or a sample is not what it should be.
    """
    tasks: dict[str, int] = {}
    for evaluation, sample, where in _samples(path):
        with read_at(where):
            task = tasks.setdefault(str(sample.get("id")), len(tasks))
            line = _rollout(evaluation, sample, where, task).line()
        yield line


def _samples(path: Path) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], str]]:
    if path.suffix != ".eval":
        log = _object(path.read_bytes(), str(path))
        samples = log.get("samples") or []
        if not isinstance(samples, list):
            raise JsonlError(f"{path}: samples: expected a list")
        for index, sample in enumerate(samples):
            yield log["eval"], sample, f"{path}: samples[{index}]"
        return
    try:
        yield from _zipped(path)
    except (zipfile.BadZipFile, EOFError) as error:
        raise JsonlError(f"{path}: not a log of Inspect: {error}") from None


def _zipped(path: Path) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], str]]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        header = next((name for name in _HEADERS if name in names), None)
        if header is None:
            raise JsonlError(f"{path}: not a log of Inspect: it has no {_HEADERS[0]}")
        evaluation = _unzipped(archive, header, path).get("eval")
        for name in names:
            if not name.startswith(_SAMPLES) or not name.endswith(".json"):
                continue
            sample = _unzipped(archive, name, path)
            yield evaluation if isinstance(evaluation, dict) else {}, sample, f"{path}: {name}"


def _unzipped(archive: zipfile.ZipFile, name: str, path: Path) -> dict[str, Any]:
    where, member = f"{path}: {name}", archive.getinfo(name)
    if member.compress_type not in _METHODS:
        raise JsonlError(f"{where}: compressed by method {member.compress_type}; expected deflate or Zstandard")
    try:
        with _opened(archive, member) as file:
            # What the archive says of its sizes may be wrong.
            content = file.read(MAX_SAMPLE_BYTES + 1)
    except (OSError, RuntimeError, zlib.error, zstandard.ZstdError) as error:  # damaged, or encrypted
        raise JsonlError(f"{where} cannot be read: {error}") from None
    if len(content) > MAX_SAMPLE_BYTES:
        raise JsonlError(f"{where} is larger than {MAX_SAMPLE_BYTES} bytes")
    if zlib.crc32(content) != member.CRC:
        raise JsonlError(f"{where} cannot be read: its checksum is wrong")
    return _object(content, where)


def _opened(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    """Open a member; with Zstandard, whose frames no Python before 3.14 reads from archives, as bytes of its frames."""
    if member.compress_type != _ZSTANDARD:
        return archive.open(member)
    stored = copy.copy(member)
    stored.compress_type, stored.file_size = zipfile.ZIP_STORED, member.compress_size
    del stored.CRC  # The checksum is that of what the frames hold.
    return cast(IO[bytes], zstandard.ZstdDecompressor().stream_reader(archive.open(stored), read_across_frames=True))


def _object(content: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(content)  # of Python: Inspect writes NaN, which JSON has not
    except (ValueError, RecursionError) as error:
        raise JsonlError(f"{where}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise JsonlError(f"{where}: expected an object")
    return value


def _rollout(evaluation: Mapping[str, Any], sample: Mapping[str, Any], where: str, task: int) -> ForeignRollout:
    if not isinstance(sample, dict) or not isinstance(sample.get("messages"), list):
        raise JsonlError(f"{where}: the sample has no list `messages`")
    prompt, output = split_chat([_chat(message, where) for message in sample["messages"]], where)
    scores = {name: score for name, score in (sample.get("scores") or {}).items() if isinstance(score, dict)}
    reward = next((found for score in scores.values() if (found := value_of(score.get("value"))) is not None), None)
    error = sample.get("error")
    metadata = sample.get("metadata")
    row: dict[str, Any] = dict(metadata) if isinstance(metadata, dict) else {}
    row |= {"id": sample.get("id"), "target": sample.get("target")}
    if sample.get("choices"):
        row["choices"] = sample["choices"]
    epoch = sample.get("epoch")
    return ForeignRollout(
        task_index=task,
        rollout_index=epoch - 1 if isinstance(epoch, int) and epoch > 0 else 0,
        agent=str(evaluation.get("task") or ""),
        prompt=prompt,
        output=output,
        reward=reward,
        row=row,
        verdict={"scores": {name: _score(score) for name, score in scores.items()}},
        model=str((sample.get("output") or {}).get("model") or evaluation.get("model") or ""),
        why_not=str(error.get("message")) if isinstance(error, dict) else "",
        usage=_usage(sample.get("model_usage")),
    )


def value_of(value: object) -> float | None:
    """Return the value of a score as a number, by the rule of Inspect's own metrics; None: it has none."""
    if isinstance(value, str):
        found = _LETTERS.get(value, _WORDS.get(value.lower()))
        if found is not None:
            return found
        try:
            return number(float(value))
        except ValueError:
            return None
    return number(value)


def _score(score: Mapping[str, Any]) -> dict[str, Any]:
    return {name: score[name] for name in ("value", "answer", "explanation") if score.get(name) is not None}


def _usage(usage: object) -> dict[str, int] | None:
    counted = [one for one in usage.values() if isinstance(one, dict)] if isinstance(usage, dict) else []
    if not counted:
        return None
    totals = {name: sum(int(one.get(name) or 0) for one in counted) for name in ("input_tokens", "output_tokens")}
    return {**totals, "total_tokens": totals["input_tokens"] + totals["output_tokens"]}


def _chat(message: object, where: str) -> dict[str, Any]:
    """Return a message of Inspect as one of Chat Completions."""
    if not isinstance(message, dict):
        raise JsonlError(f"{where}: a message is not an object")
    texts, thoughts = _texts(message.get("content"))
    role = message.get("role")
    made: dict[str, Any] = {"role": role, "content": "".join(texts)}
    if role == "assistant":
        if thoughts:
            made["reasoning_content"] = "\n".join(thoughts)
        calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
        if calls:
            made["tool_calls"] = [_call(call) for call in calls]
    if role == "tool":
        error = message.get("error")
        made["tool_call_id"] = str(message.get("tool_call_id") or "")
        if isinstance(error, dict) and not made["content"]:
            made["content"] = str(error.get("message") or "")
    return made


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": str(call.get("id")), "function": {"name": str(call.get("function")), "arguments": text}}


def _texts(content: object) -> tuple[list[str], list[str]]:
    """Return the texts and the reasoning of a content; anything else is named in its place."""
    if isinstance(content, str):
        return [content], []
    texts: list[str] = []
    thoughts: list[str] = []
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(str(part.get("text", "")))
        elif kind == "reasoning":
            thoughts.append(str(part.get("reasoning") or part.get("summary") or ""))
        else:
            texts.append(f"[{kind}]")
    return texts, thoughts


INSPECT = Format(name="a log of Inspect", is_it=is_inspect, is_document=True, read_file=read_inspect, suffix=".eval")
