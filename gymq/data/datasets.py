"""Data sets that `gymq collect` reads: files of rows, folders of them, and names of the Hub."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gymq.data.jsonl import NOT_A_FILE, JsonlError
from gymq.data.row_files import num_header_lines, read_rows_of
from gymq.data.run_files import file_digest
from gymq.extensions import extensions
from gymq.protocol.decoding import UNDECODABLE
from gymq.workers import SHIPPED

HUB = "hf:"
"""How the name of a data set of the Hugging Face Hub begins."""
FILES = (".parquet", ".arrow", ".jsonl", ".jsonl.gz", ".jsonl.zst")
"""Endings of the files that are read from the Hub; it makes Parquet files of others, such as CSV."""
SHARD = re.compile(r"(?P<split>.+)-[0-9]{3,6}-of-(?P<count>[0-9]{3,6})(-[0-9a-f]+)?")
"""The name, without its ending, of one of several files of a split."""

READABLE = (*FILES, ".csv", ".tsv")
"""Endings of the files that belong to the splits of a folder."""


def hub() -> Any:
    """Return the module that fetches from the Hub: the entry point `gymq.hubs`.

    Raises:
        JsonlError: there is none.
    """
    for found in extensions("hubs"):
        return found.load()
    raise JsonlError("data sets of the Hugging Face Hub cannot be read: no package has the entry point gymq.hubs")


class Dataset:
    """The rows of a data set as lines of JSON, in order. It can be read again from the start."""

    def __init__(self, path: Path, *, of_a_list: bool = False) -> None:
        """Find the files of a data set.

        Args:
            of_a_list: whether the file has the rows of a list in Python, whose places messages name.
            path: a name of the Hugging Face Hub such as `hf:OWNER/NAME:SPLIT`; a file; a folder with the files of one
                split, or one that `datasets.Dataset.save_to_disk` wrote; or `FOLDER/SPLIT` for the files of a split in
                a folder. As with configurations, anything that is not in the current folder is looked for among the
                files that gymq ships.

        Raises:
            JsonlError: the data set does not exist or is ambiguous, or the Hub cannot be reached.
        """
        self.path = path
        self.name = "rows" if of_a_list else str(path)
        self.files = _files_of(path)
        self._of_a_list = of_a_list
        self._before: list[int] = []  # lines before each file that was begun

    def place(self, number: int) -> str:
        """Return the place of a row that was read, counted from 1, for messages."""
        if self._of_a_list:
            return f"{self.name}[{number - 1}]"
        at = 0 if len(self.files) == 1 else bisect_left(self._before, number) - 1
        name = self.name if len(self.files) == 1 else self.files[at]
        return f"{name}:{num_header_lines(self.files[at]) + number - self._before[at]}"

    def __iter__(self) -> Iterator[bytes]:
        """Yield the rows as lines of JSON.

        Raises:
            JsonlError: a file cannot be read, or a row has no JSON form.
        """
        return self.lines()

    def lines(self, refuse: Callable[[int, str], None] | None = None) -> Iterator[bytes]:
        """Yield the rows as lines of JSON.

        Args:
            refuse: called with the number of each row that has no JSON form, counted from 1, and one sentence why; an
                empty line is yielded for it. None: such a row is an error.

        Raises:
            JsonlError: a file cannot be read.
        """
        number = 0
        for position, file in enumerate(self.files):
            before = number
            self._before[position:] = [before]

            def refuse_row(row: int, problem: str, file: Path = file, before: int = before) -> None:
                if refuse is None:
                    raise JsonlError(f"{file}: row {row}: {problem}")
                refuse(before + row, problem)

            for line in read_rows_of(file, refuse_row):
                number += 1
                yield line

    def digest(self) -> str:
        """Return the SHA-256 of the file's bytes; of several files, that of their digests."""
        digests = [file_digest(file) for file in self.files]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


# Which files ----------------------------------------------------------------------------------------------------------


def _files_of(path: Path) -> list[Path]:
    if str(path).startswith(HUB):
        fetched: list[Path] = hub().fetch(str(path))
        return fetched
    if path.is_file():
        return [path]
    if path.is_dir():
        return _files_of_folder(path)
    files = _splits(path.parent).get(path.name) if path.parent.is_dir() else None
    if files:
        return files
    if not path.is_absolute() and (SHIPPED / path).exists():
        return _files_of(SHIPPED / path)
    if path.exists():
        raise JsonlError(f"{path}: {NOT_A_FILE}")
    is_of_hub = len(path.parts) == 2 and not path.suffix and not path.parent.is_dir()
    hint = f"; a data set of the Hugging Face Hub is named {HUB}{path}" if is_of_hub else ""
    raise JsonlError(f"input file {path} not found{hint}")


def _files_of_folder(folder: Path) -> list[Path]:
    if (folder / "state.json").is_file():
        return _saved_to_disk(folder)
    if (folder / "dataset_dict.json").is_file():
        splits = [split.name for split in sorted(folder.iterdir()) if (split / "state.json").is_file()]
        found = {split: [folder / split] for split in splits}
        return _files_of_folder(_only(folder, found)[0])
    return _only(folder, _splits(folder))


def _only(folder: Path, splits: dict[str, list[Path]]) -> list[Path]:
    if not splits:
        raise JsonlError(f"{folder} contains no {', '.join(READABLE)} files and no saved data set")
    if len(splits) > 1:
        raise JsonlError(f"{folder} contains {', '.join(splits)}: name one, as in {folder / next(iter(splits))}")
    return next(iter(splits.values()))


def _splits(folder: Path) -> dict[str, list[Path]]:
    """Return the files of a folder, or of its folder `data`, by split.

    `train.parquet` and `train-00000-of-00002.parquet` both belong to the split `train`.
    """
    for place in (folder, folder / "data"):
        found: dict[str, list[Path]] = {}
        counts: dict[str, int] = {}
        for file in sorted(place.iterdir()) if place.is_dir() else ():
            ending = next((ending for ending in READABLE if file.name.endswith(ending)), None)
            if ending and file.is_file() and not file.name.startswith("."):
                stem = file.name.removesuffix(ending)
                shard = SHARD.fullmatch(stem)
                found.setdefault(shard["split"] if shard else stem, []).append(file)
                if shard:
                    counts[shard["split"]] = int(shard["count"])
        for split, count in counts.items():
            if len(found[split]) != count:
                raise JsonlError(f"{place} contains {len(found[split])} files of {split}, their names indicate {count}")
        if found:
            return found
    return {}


def _saved_to_disk(folder: Path) -> list[Path]:
    """Return the files that `state.json` names; the folder may hold others from earlier saves."""
    state = folder / "state.json"
    try:
        names = [entry["filename"] for entry in msgspec.json.decode(state.read_bytes())["_data_files"]]
        files = [folder / str(name) for name in names]
    except (OSError, LookupError, TypeError, *UNDECODABLE) as error:
        raise JsonlError(f"{state}: not the state of a saved data set: {error!r}") from None
    missing = [str(file) for file in files if file.parent != folder or not file.is_file()]
    if missing:
        raise JsonlError(f"{state} names files that do not exist: {', '.join(missing)}")
    return files
