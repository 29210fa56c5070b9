"""Data sets of the Hugging Face Hub: the files of a name, downloaded once, verified and cached.

The library of the Hub (`gymq[hub]`) downloads, resumes and caches. This module finds the files of a name and compares
each file's checksum with the Hub's.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import quote

import msgspec
import yaml

from gymq.data.datasets import FILES, HUB, SHARD
from gymq.data.jsonl import JsonlError, atomic_write
from gymq.data.run_files import file_digest

CONVERTED = "refs/convert/parquet"
"""The branch with the Parquet files that the Hub makes of a data set."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}")
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_WORDS = re.compile(r"[A-Za-z0-9]+")
_CHECKED = ".gymq-checked"  # suffix of a file that marks a cached file as verified; it contains its size
_NOTES = ".gymq"  # folder in the folder of a repository, with the last known commit and files of each revision


@dataclass(frozen=True)
class HubName:
    """A data set of the Hub, as `hf:OWNER/NAME[/CONFIGURATION][@REVISION][:SPLIT]`."""

    repository: str
    configuration: str | None = None
    revision: str | None = None
    split: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName:
        """Read a name.

        Raises:
            JsonlError: it is not of this form.
        """
        rest, colon, split = text.removeprefix(HUB).partition(":")
        rest, at, revision = rest.partition("@")
        parts = rest.split("/")
        named = [*parts, *([split] if colon else [])]
        is_right = len(parts) in (2, 3) and all(_PART.fullmatch(part) and ".." not in part for part in named)
        if not is_right or (at and (not _REVISION.fullmatch(revision) or ".." in revision)):
            raise JsonlError(
                f"{text}: a data set of the Hub is named {HUB}OWNER/NAME[/CONFIGURATION][@REVISION][:SPLIT]"
            )
        return cls("/".join(parts[:2]), parts[2] if len(parts) == 3 else None, revision or None, split or None)

    def __str__(self) -> str:
        configuration = f"/{self.configuration}" if self.configuration else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{HUB}{self.repository}{configuration}{revision}{f':{self.split}' if self.split else ''}"


class HubFile(msgspec.Struct, frozen=True):
    """A file of a data set, as the Hub describes it."""

    path: str  # in the repository
    sha256: str | None  # of its bytes, for a large file
    git_sha1: str | None  # of the git blob, for the others


class _Seen(msgspec.Struct):
    """The files of a commit."""

    commit: str
    files: list[HubFile]


def fetch(text: str, token: str | None = None) -> list[Path]:
    """Return the files of the split of a name, in the cache of the Hub's library; blocks.

    Cached files are not downloaded again, and an interrupted download is resumed. Without a connection the newest
    revision that was downloaded before is used.

    Args:
        token: of a user of the Hub; None: `HF_TOKEN`, or that of `hf auth login`.

    Raises:
        JsonlError: the data set or split does not exist, the Hub cannot be reached, or a file is damaged.
    """
    name = HubName.parse(text)
    api = _Api(name, token)
    with _sentences(name, api.library):
        commit, files = api.files(name.revision)
        if not any(file.path.endswith(FILES) for file in files) and name.revision is None:
            commit, files = api.files(CONVERTED)
        by_path = {file.path: file for file in files}
        chosen = choose(name, list(by_path), api.card(commit, by_path))
        return [api.fetched(commit, by_path[path]) for path in chosen]


def fetch_file(repository: str, path: str) -> Path:
    """Return one file of a data set by its path, in the cache; blocks.

    Raises:
        JsonlError: the file does not exist, the Hub cannot be reached, or the file is damaged.
    """
    name = HubName.parse(f"{HUB}{repository}")
    api = _Api(name, None)
    with _sentences(name, api.library):
        commit, files = api.files(None)
        for file in files:
            if file.path == path:
                return api.fetched(commit, file)
    raise JsonlError(f"{name} has no file {path}")


class _Api:
    """The Hub's library for one repository."""

    def __init__(self, name: HubName, token: str | None) -> None:
        try:
            self.library: Any = importlib.import_module("huggingface_hub")
        except ImportError:
            raise JsonlError(f'{name}: reading it needs a package: pip install "gymq[hub]"') from None
        self._name = name
        self._common = {"token": token, "library_name": "gymq"}
        self._endpoint = os.environ.get("HF_ENDPOINT") or None
        self._api = self.library.HfApi(endpoint=self._endpoint, **self._common)

    def files(self, revision: str | None) -> tuple[str, list[HubFile]]:
        """Return a commit and its files; without a connection, the last known commit."""
        note = self._folder / _NOTES / f"{quote(revision or 'main', safe='')}.json"
        try:
            info = self._api.dataset_info(self._name.repository, revision=revision, files_metadata=True)
        except Exception as error:
            if self._is_refusal(error) or not note.is_file():
                raise
            seen = msgspec.json.decode(note.read_bytes(), type=_Seen)
            return seen.commit, seen.files
        seen = _Seen(info.sha, [_described(sibling) for sibling in info.siblings or ()])
        note.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(note) as file:
            file.write(msgspec.json.encode(seen))
        return seen.commit, seen.files

    def _is_refusal(self, error: Exception) -> bool:
        """Return whether the Hub answered with an error; then the cache must not be used instead."""
        status = getattr(getattr(error, "response", None), "status_code", None)
        return isinstance(status, int) and status < 500

    @property
    def _folder(self) -> Path:
        """The folder of the repository in the cache of the Hub's library."""
        return Path(self.library.constants.HF_HUB_CACHE) / f"datasets--{self._name.repository.replace('/', '--')}"

    def card(self, commit: str, files: dict[str, HubFile]) -> dict[str, Any]:
        """Return the settings at the head of README.md, which may list the files of configurations and splits."""
        card = files.get("README.md")
        if card is None:
            return {}
        with self.fetched(commit, card).open(encoding="utf-8", errors="replace") as file:
            return _front_matter(file.read(4 << 20))

    def fetched(self, commit: str, file: HubFile) -> Path:
        path = Path(
            self.library.hf_hub_download(
                self._name.repository,
                file.path,
                repo_type="dataset",
                revision=commit,
                endpoint=self._endpoint,
                **self._common,
            )
        )
        self._check(path, file)
        return path

    def _check(self, path: Path, file: HubFile) -> None:
        """Compare a file with the Hub's checksum, once."""
        wanted = file.sha256 or file.git_sha1
        blob = path.resolve()
        mark = blob.with_name(f"{blob.name}{_CHECKED}")
        size = str(blob.stat().st_size)
        if wanted is None or (mark.is_file() and mark.read_text() == size):
            return
        actual = file_digest(blob) if file.sha256 else _git_sha1(blob)
        if actual != wanted:
            blob.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise JsonlError(
                f"{self._name}: {file.path} arrived damaged: its checksum is {actual[:12]}…, the Hub's is "
                f"{wanted[:12]}…; it is deleted, so the same command fetches it again"
            )
        mark.write_text(size)


def choose(name: HubName, paths: Sequence[str], card: dict[str, Any]) -> list[str]:
    """Return the files of the named split.

    The files of a split are listed under `configs` at the head of the repository's README.md; without that they follow
    from names and folders, as on the Hub.

    Raises:
        JsonlError: no file can be read, or the name is ambiguous.
    """
    readable = sorted(path for path in paths if path.endswith(FILES))
    if not readable:
        raise JsonlError(
            f"{name} has no files of {', '.join(FILES)}; {HUB}{name.repository}@{CONVERTED} names the Parquet "
            "files that the Hub makes of public data sets"
        )
    by_configuration = _of_card(card, readable) or _of_folders(name, readable)
    configuration = _one("configuration", by_configuration, name)
    splits = by_configuration[configuration]
    return splits[_one("split", splits, name)]


def _one(what: Literal["configuration", "split"], found: dict[str, Any], name: HubName) -> str:
    """Return the configuration or split that is named, or else the only one or the default."""
    there = ", ".join(sorted(found)) or "none"
    wanted: str | None = getattr(name, what)
    if wanted is not None:
        if wanted not in found:
            raise JsonlError(f"{name}: there is no {what} {wanted}; there are: {there}")
        return wanted
    if len(found) == 1:
        return next(iter(found))
    if what == "configuration" and "default" in found:
        return "default"
    first = sorted(found)[0] if found else "..."
    example = replace(name, **{what: first})
    raise JsonlError(f"{name} has several {what}s: {there}; name one, as in {example}")


def _of_card(card: dict[str, Any], paths: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    configurations = card.get("configs")
    for entry in configurations if isinstance(configurations, list) else ():
        if not isinstance(entry, dict):
            continue
        data = entry.get("data_files")
        if isinstance(data, str) or (isinstance(data, list) and all(isinstance(one, str) for one in data)):
            data = [{"split": "train", "path": data}]
        folder = _text(entry.get("data_dir")).strip("/")
        splits: dict[str, list[str]] = {}
        if data is None and folder:
            for path in paths:
                if path.startswith(f"{folder}/"):
                    splits.setdefault(_split_of(PurePosixPath(path).relative_to(folder).parts), []).append(path)
        for one in data if isinstance(data, list) else ():
            if not isinstance(one, dict):
                continue
            given = one.get("path")
            patterns = [text for each in (given if isinstance(given, list) else [given]) if (text := _text(each))]
            matching = [path for path in paths if any(_matches(path, pattern, folder) for pattern in patterns)]
            if matching:
                splits[_text(one.get("split")) or "train"] = matching
        if splits:
            found[_text(entry.get("config_name")) or "default"] = splits
    return found


def _text(value: Any) -> str:
    """Return a text or number of a card as text; nothing of a list or object, which YAML may repeat without end."""
    return str(value) if isinstance(value, str | int | float) and value else ""


def _matches(path: str, pattern: str, folder: str) -> bool:
    pattern = pattern.removeprefix("./")
    whole = f"{folder}/{pattern}" if folder else pattern
    if "**" in whole:
        return fnmatchcase(path, whole.replace("**/", "*"))
    names, patterns = path.split("/"), whole.split("/")
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))


def _of_folders(name: HubName, paths: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Group files by their folders, `CONFIGURATION/SPLIT/0000.parquet`, or by names and folders that name a split."""
    found: dict[str, dict[str, list[str]]] = {}
    for path in paths:
        parts = PurePosixPath(path).parts
        if len(parts) == 3 and parts[2].partition(".")[0].isdecimal():
            found.setdefault(parts[0], {}).setdefault(parts[1], []).append(path)
            continue
        configuration = parts[0] if len(parts) > 1 and parts[0] == name.configuration else "default"
        found.setdefault(configuration, {}).setdefault(_split_of(parts), []).append(path)
    if name.configuration is None and len(found) == 1:
        return {"default": next(iter(found.values()))}
    return found


def _split_of(parts: Sequence[str]) -> str:
    """Return the split in a path: a word such as `train`, else the name of a shard, else `train`."""
    stem = parts[-1].partition(".")[0]
    for part in (stem, *reversed(parts[:-1])):
        for word in _WORDS.findall(part.lower()):
            if word in _SPLIT_WORDS:
                return _SPLIT_WORDS[word]
    shard = SHARD.fullmatch(stem)
    return shard["split"] if shard else "train"


def _described(sibling: Any) -> HubFile:
    lfs = getattr(sibling, "lfs", None)
    sha256 = lfs.get("sha256") if isinstance(lfs, dict) else getattr(lfs, "sha256", None)
    return HubFile(sibling.rfilename, sha256, None if sha256 else sibling.blob_id)


def _front_matter(text: str) -> dict[str, Any]:
    if not text.startswith("---\n"):
        return {}
    try:
        head = yaml.safe_load(text[4:].partition("\n---")[0])
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError):  # of tags such as `!!int abc`
        return {}
    return head if isinstance(head, dict) else {}


def _git_sha1(path: Path) -> str:
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


@contextmanager
def _sentences(name: HubName, library: Any) -> Iterator[None]:
    """Turn errors of the library into sentences."""
    try:
        yield
    except JsonlError:
        raise
    except Exception as error:  # the library raises those of its HTTP client, too
        raise JsonlError(f"{name}: {_sentence(error, library.errors)}") from None


def _sentence(error: Exception, errors: Any) -> str:
    if isinstance(error, errors.GatedRepoError):
        return "the Hub gives it only to users who accepted its terms: accept them there, and set HF_TOKEN"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the Hub has no such data set, or it is private and HF_TOKEN has no access to it"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the data set has no such revision"
    if isinstance(error, errors.EntryNotFoundError):
        return "a file of it is neither on the Hub nor fetched before"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "it was not fetched before, and HF_HUB_OFFLINE forbids asking the Hub"
    said = " ".join(str(error).split())[:200]
    return f"the Hub cannot be reached, and it was not fetched before: {type(error).__name__}: {said}"
