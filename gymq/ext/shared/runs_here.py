"""Runs whose files are in this folder or in its folder `runs`: what there is to verify again in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from gymq.data.run_files import MANIFEST, RunFiles
from gymq.errors import UsageError
from gymq.runs.older_rewards import OlderRewards, older_rewards, score_command

_FOLDERS = (Path(), Path("runs"))  # where the files of a run are looked for by its name


class Rescoring(msgspec.Struct, frozen=True):
    """What there is to verify again in the files of a run."""

    older: list[OlderRewards] = []
    failures: str = ""  # the command for the failed rollouts; empty: the files of the run are not here


def rescoring_here(run: str) -> Rescoring:
    """Return what there is to verify again in a run whose files are in this folder or in its folder `runs`."""
    for files in _files_here(run):
        if (manifest := files.read_manifest()) is not None:
            return Rescoring(list(older_rewards(files)), score_command(files.failures, manifest))
    return Rescoring()


def older_rewards_here(run: str) -> Iterator[OlderRewards]:
    """Yield older rewards of a run whose files are in this folder or in its folder `runs`."""
    for files in _files_here(run):
        yield from older_rewards(files)


def _files_here(run: str) -> Iterator[RunFiles]:
    for folder in _FOLDERS:
        for path in folder.glob(f"*{MANIFEST}"):
            files = RunFiles(path.with_name(path.name.removesuffix(MANIFEST) + ".jsonl"))
            with suppress(UsageError):
                if files.read_run() == run:
                    yield files
