"""The profile of a run on disk: from its materialised file and output file, written beside the output."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gymq.jsonl import JsonlError, JsonlFile, LineSource, parse_object, written_whole
from gymq.ledger import TemporaryDatabase
from gymq.profile import InputRow, ProfileError, ProfileStream, ResultRow, result_row
from gymq.rows import RowError, read_rows

_COMPRESSED = (".gz", ".zst")
_SCALAR_STARTS = b"-0123456789tfn"


class ProfileFiles(NamedTuple):
    """What was written, and from how many rows."""

    reward_profiling: Path
    agent_metrics: Path
    num_rows: int
    num_results: int


def write_profile(materialised: Path, results: Path, *, allow_partial: bool = False) -> ProfileFiles:
    """Profile a run into `<stem>_reward_profiling.jsonl` and `<stem>_agent_metrics.json` beside its output.

    Rows and results may be in any order; they are sorted on disk, so a run of any length fits. Existing files are
    replaced once both new ones are complete.

    Raises:
        RowError, JsonlError: a line cannot be read.
        ProfileError: rows and results do not belong together, see `gymq.profile.profile`.
    """
    groups_path, agents_path = profile_paths(results)
    stream = ProfileStream(allow_partial=allow_partial)
    encoder = msgspec.json.Encoder()
    with (
        _SortedLines() as rows,
        _SortedLines() as numbers,
        written_whole(agents_path) as agents_file,
        written_whole(groups_path) as groups_file,
    ):
        _sort_rows(rows, JsonlFile(materialised))
        _sort_results(numbers, JsonlFile(results))
        for group in stream.groups(_input_rows(rows), _result_rows(numbers)):
            groups_file.write(encoder.encode(group) + b"\n")
        agents_file.write(encoder.encode(stream.agents()) + b"\n")
    return ProfileFiles(groups_path, agents_path, stream.num_rows, stream.num_results)


def profile_paths(results: Path) -> tuple[Path, Path]:
    """Where the profile of an output file goes: `<stem>_reward_profiling.jsonl`, `<stem>_agent_metrics.json`."""
    plain = results.with_suffix("") if results.suffix in _COMPRESSED else results
    return plain.with_name(f"{plain.stem}_reward_profiling.jsonl"), plain.with_name(f"{plain.stem}_agent_metrics.json")


class _SortedLines(TemporaryDatabase):
    """Texts by the key of their rollout, on disk."""

    def __init__(self) -> None:
        super().__init__("lines (task INTEGER, rollout INTEGER, agent TEXT, text BLOB, UNIQUE (task, rollout))")

    def add(self, key: tuple[int, int], agent: str, text: bytes) -> bool:
        """Add a text; False if the key has one."""
        try:
            self._execute("INSERT INTO lines VALUES (?, ?, ?, ?)", (*key, agent, text))
        except sqlite3.IntegrityError:
            return False
        return True

    def __iter__(self) -> Iterator[tuple[tuple[int, int], str, bytes]]:
        """Key, agent and text, in the order of the keys."""
        for task, rollout, agent, text in self._database.execute("SELECT * FROM lines ORDER BY task, rollout"):
            yield (task, rollout), agent, text


def _sort_rows(lines: _SortedLines, source: LineSource) -> None:
    for row in read_rows(source):
        key = (row.task_index, row.rollout_index)
        if not lines.add(key, row.agent, row.json):
            raise ProfileError(f"{source.name}:{row.line_number}: there is more than one row of rollout {key}")


def _sort_results(lines: _SortedLines, source: LineSource) -> None:
    for number, line in enumerate(source, 1):
        if line.isspace():
            continue
        where = f"{source.name}:{number}"
        try:
            result = result_row(_slim(line))
        except (JsonlError, ProfileError) as error:
            raise RowError(f"{where}: {error}") from None
        if not lines.add(result.key, "", msgspec.json.encode(result)):
            raise ProfileError(f"{where}: there is more than one result of rollout {result.key}")


def _slim(line: bytes) -> dict[str, Any]:
    """A result without its texts, lists and objects, but for the token usage."""
    members = parse_object(line)
    try:
        result = _scalars(members)
        if "response" in members:
            response = msgspec.json.decode(members["response"], type=dict[str, msgspec.Raw] | None)
            result["response"] = response and {"usage": msgspec.json.decode(response.get("usage", b"null"))}
    except msgspec.ValidationError as error:
        raise JsonlError(f"a member cannot be read: {error}") from None
    return result


def scalar_members(line: bytes) -> dict[str, Any]:
    """The numbers, booleans and nulls of a JSON object; texts, lists and objects are not decoded."""
    return _scalars(parse_object(line))


def _scalars(members: dict[str, msgspec.Raw]) -> dict[str, Any]:
    return {name: msgspec.json.decode(raw) for name, raw in members.items() if _is_scalar(raw)}


def _is_scalar(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) in _SCALAR_STARTS


def _input_rows(lines: _SortedLines) -> Iterator[InputRow]:
    for key, agent, text in lines:
        yield InputRow(key, agent, parse_object(text))


def _result_rows(lines: _SortedLines) -> Iterator[ResultRow]:
    decoder = msgspec.json.Decoder(ResultRow)
    for _, _, text in lines:
        yield decoder.decode(text)
