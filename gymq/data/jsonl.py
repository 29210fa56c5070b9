"""JSONL files: read line by line, plain or compressed, and written whole or not at all."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, Protocol, cast

import msgspec
import zstandard

from gymq.errors import GymqError
from gymq.protocol.decoding import UNDECODABLE

MAX_LINE_BYTES = 512 * 1024 * 1024
"""A longer line is refused, so that a file without line breaks cannot fill the memory."""

NOT_A_FILE = "not a regular file; rows are read more than once, so write them to one"
_OF_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OF_SEVERAL_LINES = {
    b"[": "; `jq -c '.[]'` writes an array as lines, one for each element",
    b"{": "; `jq -c .` writes an object on one line",
}


class JsonlError(GymqError, ValueError):
    """A data set or file cannot be found or read, or a line is invalid. The text names file and line."""


class LineSource(Protocol):
    """Lines that can be read again from the start, under a name for messages."""

    @property
    def name(self) -> str: ...

    def __iter__(self) -> Iterator[bytes]: ...


class JsonlFile:
    """The lines of a file, with their line ends; a byte order mark is left out.

    `.gz` and `.zst` files are decompressed while reading.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = str(path)

    def __iter__(self) -> Iterator[bytes]:
        """Read the file from its start.

        Raises:
            JsonlError: the file cannot be read or decompressed, or a line is longer than `MAX_LINE_BYTES`.
        """
        number = 0
        try:
            if self.path.exists() and not self.path.is_file():
                raise JsonlError(f"{self.name}: {NOT_A_FILE}")
            with _open(self.path) as file:
                while line := file.readline(MAX_LINE_BYTES + 1):
                    number += 1
                    if number == 1 and line.startswith(_OF_UTF16):
                        raise JsonlError(f"{self.name}: UTF-16, not UTF-8; `iconv -f UTF-16 -t UTF-8` converts it")
                    if len(line) > MAX_LINE_BYTES:
                        raise JsonlError(f"{self.name}:{number}: the line is longer than {MAX_LINE_BYTES} bytes")
                    yield line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        except FileNotFoundError:
            raise JsonlError(f"{self.name}: file not found") from None
        except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
            raise JsonlError(f"{self.name}: cannot be read after line {number}: {error}") from error


class JsonlText:
    """The lines of a text in memory."""

    def __init__(self, name: str, text: bytes) -> None:
        self.name = name
        self.text = text

    def __iter__(self) -> Iterator[bytes]:
        return iter(io.BytesIO(self.text))


def numbered_lines(source: LineSource) -> Iterator[tuple[int, str, bytes]]:
    """Yield the number of each line that is not blank, its place for messages, and the line."""
    for number, line in enumerate(source, 1):
        if line and not line.isspace():
            yield number, f"{source.name}:{number}", line


def parse_object(line: bytes) -> dict[str, msgspec.Raw]:
    """Return the fields of the JSON object in a line, each as its raw JSON text.

    Raises:
        JsonlError: the line is not a JSON object; the message does not name the line.
    """
    try:
        line.decode("utf-8")
        return msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise JsonlError(_why_no_object(line, error)) from None
    except RecursionError:
        raise JsonlError("the line is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise JsonlError(f"the line is not UTF-8: byte {error.start} cannot be decoded") from None


def _why_no_object(line: bytes, error: msgspec.DecodeError) -> str:
    with suppress(*UNDECODABLE):
        msgspec.json.decode(line)
        return "the line is JSON, but not an object"
    if not line.strip():
        return "the line is blank"
    if b"\0" in line:
        return "the line has zero bytes, as text in UTF-16 does; it must be UTF-8"
    constants: list[str] = []
    try:
        json.loads(line, parse_constant=constants.append)  # Python takes more for JSON than there is
    except (ValueError, RecursionError):
        return f"the line is not valid JSON: {error}{_OF_SEVERAL_LINES.get(line.strip(), '')}"
    return f"the line is not valid JSON: it contains {constants[0] if constants else 'half of a surrogate pair'}"


def truncate_torn_line(path: Path) -> int:
    """Make a file end with a whole line after a process was killed while it appended.

    A last line without line end gets one if it is a JSON object, otherwise it is cut off.

    Returns:
        The number of bytes that were cut off.
    """
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        start = _last_line_start(file, end)
        if start == end:
            return 0
        file.seek(start)
        try:
            parse_object(file.read())
        except JsonlError:
            file.truncate(start)
            return end - start
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
        return 0


def private(path: str, flags: int) -> int:
    """Open a file, as an opener for `open`; only its owner may read a new one, since rollouts may hold secrets."""
    return os.open(path, flags, 0o600)


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` if the block ends without an exception.

    What is written to `.gz` and `.zst` files is compressed.

    Raises:
        OSError: it cannot be written; names `path`.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb", opener=private) as file:
            with _compressed(file, path.suffix) as written:
                yield written
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # None: the disk is full
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()


def _compressed(file: IO[bytes], suffix: str) -> AbstractContextManager[IO[bytes]]:
    if suffix == ".gz":  # without name and time, so that the same lines are the same bytes
        return cast(IO[bytes], gzip.GzipFile("", "wb", fileobj=file, mtime=0))
    if suffix == ".zst":
        writer: Any = zstandard.ZstdCompressor().stream_writer(file, closefd=False)
        return cast(IO[bytes], io.BufferedWriter(writer, buffer_size=1024 * 1024))
    return nullcontext(file)


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if path.suffix == ".zst":
        # Several frames one after the other are one file, as with gzip members.
        frames: Any = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True)
        return cast(IO[bytes], io.BufferedReader(frames, buffer_size=1024 * 1024))
    return path.open("rb", buffering=1024 * 1024)


def _last_line_start(file: IO[bytes], end: int) -> int:
    """Return the offset after the last line end of a file with `end` bytes."""
    position = end
    while position > 0:
        step = min(64 * 1024, position)
        position -= step
        file.seek(position)
        found = file.read(step).rfind(b"\n")
        if found >= 0:
            return position + found + 1
    return 0
