import errno
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from gymq.data.datasets import Dataset
from gymq.data.jsonl import JsonlError, JsonlFile, atomic_write, parse_object, truncate_torn_line

LINES = [b'{"a": 1}\n', b'{"a": 2}\r\n', b"\n", b'{"a": 3}']


def test_lines_come_as_they_are_and_again_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(LINES))
    source = JsonlFile(path)
    assert list(source) == LINES
    assert list(source) == LINES


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}\r\n')
    assert list(JsonlFile(path)) == [b'{"a": 1}\r\n', b'{"a": 2}\r\n']


def test_gzip_members_one_after_the_other_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(LINES[:2])) + gzip.compress(b"".join(LINES[2:])))
    assert list(JsonlFile(path)) == LINES


def test_zstd_frames_one_after_the_other_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.zst"
    path.write_bytes(zstandard.compress(b"".join(LINES[:2])) + zstandard.compress(b"".join(LINES[2:])))
    assert list(JsonlFile(path)) == LINES


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_file_is_written_as_it_is_read(tmp_path: Path, ending: str) -> None:
    first, second = (tmp_path / f"{name}.jsonl{ending}" for name in "ab")
    for path in (first, second):
        with atomic_write(path) as file:
            file.writelines(LINES[:2])
            file.write(b"".join(LINES[2:]))
        assert list(JsonlFile(path)) == LINES
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(("ending", "compress"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_a_broken_compressed_file_is_reported_with_its_name(tmp_path: Path, ending: str, compress) -> None:
    path = tmp_path / f"rows.jsonl{ending}"
    path.write_bytes(b"not compressed at all")
    with pytest.raises(JsonlError, match=f"rows.jsonl{ending}: cannot be read after line 0"):
        list(JsonlFile(path))


@pytest.mark.parametrize("damaged", [lambda whole: whole[:-9], lambda whole: whole[:10] + b"\xff" + whole[11:]])
def test_a_gzip_file_that_is_damaged_is_reported(tmp_path: Path, damaged: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(damaged(gzip.compress(b"".join(LINES))))
    with pytest.raises(JsonlError, match="cannot be read"):
        list(JsonlFile(path))


def test_a_missing_file_is_reported_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(JsonlError, match=r"nothing\.jsonl: file not found"):
        list(JsonlFile(tmp_path / "nothing.jsonl"))


def test_text_in_utf_16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n', "utf-16")
    with pytest.raises(JsonlError, match=r"rows\.jsonl: UTF-16, not UTF-8"):
        list(JsonlFile(path))


def test_a_pipe_is_refused_before_it_blocks(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    os.mkfifo(path)
    with pytest.raises(JsonlError, match=r"rows\.jsonl: not a regular file"):
        list(JsonlFile(path))
    with pytest.raises(JsonlError, match=r"rows\.jsonl: not a regular file"):
        Dataset(path)


def test_a_full_disk_is_reported_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(OSError, match="No space left") as raised, atomic_write(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert (raised.value.filename, list(tmp_path.iterdir())) == (str(path), [])


def test_an_endless_line_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymq.data.jsonl.MAX_LINE_BYTES", 100)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + b"x" * 1000)
    with pytest.raises(JsonlError, match=r"rows\.jsonl:2: the line is longer than 100 bytes"):
        list(JsonlFile(path))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\n", "the line is blank"),
        (b'{"a": 1,}\n', "not valid JSON"),
        (b'{"a": 1} {"a": 2}\n', "not valid JSON"),
        (b'"What is it?",Nairobi\n', "not valid JSON"),
        (b"[\n", r"not valid JSON: .*; `jq -c '\.\[\]'` writes an array as lines"),
        (b"  {\r\n", r"not valid JSON: .*; `jq -c \.` writes an object on one line"),
        (b'{"a": "\xff"}\n', "not UTF-8"),
        (b'{"\xff": 1}\n', "not UTF-8"),
        ('{"a": 1}\n'.encode("utf-16-le"), "zero bytes, as text in UTF-16 does"),
        (b"[1]\n", "JSON, but not an object"),
        (b"null\n", "JSON, but not an object"),
        (b'{"a": -Infinity, "b": NaN}\n', "not valid JSON: it contains -Infinity$"),
        (rb'{"a": "\ud800"}', "not valid JSON: it contains half of a surrogate pair$"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "the line is nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "the line is not valid JSON"),
    ],
)
def test_a_line_that_is_no_object_is_refused_with_the_reason(line: bytes, reason: str) -> None:
    with pytest.raises(JsonlError, match=reason):
        parse_object(line)


def test_fields_keep_the_text_that_they_have_in_the_file() -> None:
    members = parse_object(b'{"big": 123456789012345678901234567890, "float": 1.10, "huge": 1e400, "nested": [ 1 ]}\n')
    assert {name: bytes(raw) for name, raw in members.items()} == {
        "big": b"123456789012345678901234567890",
        "float": b"1.10",
        "huge": b"1e400",
        "nested": b"[ 1 ]",
    }


@pytest.mark.parametrize(
    ("before", "after", "cut"),
    [
        (b"", b"", 0),
        (b'{"a": 1}\n', b'{"a": 1}\n', 0),
        (b'{"a": 1}\n{"a": 2', b'{"a": 1}\n', 7),
        (b'{"a": 1}\n{"a": 2}', b'{"a": 1}\n{"a": 2}\n', 0),
        (b'{"a": 1}\n12', b'{"a": 1}\n', 2),
        (b'{"a"', b"", 4),
    ],
)
def test_a_torn_last_line_is_cut_off_and_a_whole_one_gets_its_line_end(
    tmp_path: Path, before: bytes, after: bytes, cut: int
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(before)
    assert truncate_torn_line(path) == cut
    assert path.read_bytes() == after


def test_a_torn_line_longer_than_a_block_is_found(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "' + b"x" * 200_000)
    truncate_torn_line(path)
    assert path.read_bytes() == b'{"a": 1}\n'


def _write_half(path: Path) -> None:
    with atomic_write(path) as file:
        file.write(b"half")
        raise RuntimeError


def test_a_file_is_replaced_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError):
        _write_half(path)
    assert path.read_bytes() == b"old"
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]
