"""What is checked of a collection's input and output before anything is changed or started."""

from __future__ import annotations

from collections.abc import Sequence

from gymq.data.datasets import DatasetError
from gymq.data.disk_index import EarlierRows
from gymq.data.hub import HubError
from gymq.data.materialise import MaterialiseOptions
from gymq.data.rows import digest_without_task
from gymq.data.run_changes import Change, changed_fields, changed_options
from gymq.data.run_files import COMPRESSED, Manifest, RunFiles
from gymq.defaults import MAX_TIMEOUT_S
from gymq.runs.collection.options import CollectError, CollectOptions
from gymq.runs.collection.usable_rows import UsableRows

MAX_REASONS = 5  # named when a run cannot be resumed
RESIZING = ("num_repeats", "limit", "agent_name")
"""Settings that may change if all rows there are stay as they are."""


def check_files(options: CollectOptions) -> None:
    """Check what a collection reads and writes, before anything is changed or started.

    Raises:
        CollectError, RunFileError: something is missing or in the way.
    """
    if not 0 < options.rollout_timeout_s <= MAX_TIMEOUT_S:
        raise CollectError(
            f"a rollout may take between 0 and {MAX_TIMEOUT_S} seconds, not {options.rollout_timeout_s:g}"
        )
    for path in (options.input, options.output):
        if any("\ud800" <= letter <= "\udfff" for letter in str(path)):  # bytes that Python could not decode
            raise CollectError(f"{str(path)!a}: the name of the file is not UTF-8, so it cannot be kept with the run")
    try:
        read = [file.resolve() for file in options.dataset.files]
    except (DatasetError, HubError) as error:
        raise CollectError(str(error)) from None
    files = RunFiles(options.output)
    if options.output.resolve() in read:
        raise CollectError(f"input and output are the same file: {options.output}")
    if any(file.resolve() in read for file in files.all()):
        raise CollectError(f"the input {options.input} belongs to the run at the output: choose another output")
    if options.input.is_dir() and options.output.resolve().is_relative_to(options.input.resolve()):
        raise CollectError(f"the output {options.output} is in the input folder: choose another place")
    if options.output.suffix in COMPRESSED:
        raise CollectError(f"the output {options.output} would not be compressed: give a name that ends in .jsonl")
    if options.output.is_dir():
        raise CollectError(f"the output {options.output} is a folder: name a file in it")
    if shared := files.shared():
        raise CollectError(f"{shared} belongs to a run with another output than {options.output}: choose another name")
    if not options.overwrite and files.read_manifest() is None and files.output.exists():
        raise refusal(options, f"{files.manifest.name} is not beside it")


def check_changes(manifest: Manifest, options: CollectOptions) -> tuple[list[str], list[Change]]:
    """Compare a run with the current options.

    Returns:
        Sentences about changes that do not change what is asked, and the changes of the number of rollouts.

    Raises:
        CollectError: a setting that determines the rollouts changed.
    """
    before, now = MaterialiseOptions().model_dump(mode="json") | manifest.settings, options.settings()
    fixed = [{name: value for name, value in given.items() if name not in RESIZING} for given in (before, now)]
    asked, not_asked = _config_changes(manifest, options)
    if refused := [*changed_fields(*fixed), *asked]:
        raise refusal(options, *refused)
    resized = [Change(name, before[name], now[name]) for name in RESIZING if before[name] != now[name]]
    return not_asked, resized


def _config_changes(manifest: Manifest, options: CollectOptions) -> tuple[list[Change], list[str]]:
    if manifest.config and options.config:
        return changed_options(manifest.config, options.config)
    if manifest.config_digest == options.config_digest:
        return [], []
    if not options.config_digest:
        reason = "it was started with a configuration of its workers, and none is given now"
    elif not manifest.config_digest:
        reason = "it was started without a configuration of its workers, and one is given now"
    else:
        reason = "the configuration of its workers changed"
    raise refusal(options, reason)


def check_rows(manifest: Manifest, options: CollectOptions, resized: Sequence[Change]) -> None:
    """Check that a run keeps rows in an input that has changed, before a cluster is started for it.

    Raises:
        CollectError: as `check_kept`.
        RunFileError: the materialised rows cannot be read.
    """
    files = RunFiles(options.output)
    if not files.materialised.exists() or manifest.input_digest == options.dataset.digest():
        return
    with EarlierRows() as known, UsableRows(options, known=known) as rows:
        add_rows(known, files)
        for _ in rows:
            pass
        check_kept(known, options, resized)


def add_rows(known: EarlierRows, files: RunFiles) -> None:
    """Add the rows of an earlier start, if they are there."""
    for row in files.rows() if files.materialised.exists() else ():
        known.add(row.task_index, row.rollout_index, digest_without_task(row.json))


def check_kept(known: EarlierRows, options: CollectOptions, resized: Sequence[Change]) -> None:
    """Check that a run whose rows changed keeps some of them, and that no setting asks for fewer rollouts.

    Raises:
        CollectError: it is to be another run.
    """
    if known.num_missing and (smaller := [change for change in resized if _is_smaller(change)]):
        raise refusal(options, *smaller)
    if known.num_missing and not known.num_tasks()[1]:
        raise refusal(options, f"none of its rows is in {options.dataset.name}")


def _is_smaller(change: Change) -> bool:
    """Return whether a changed setting asks for fewer rollouts than before, judging by the numbers alone."""
    match change.name, change.before, change.now:
        case "limit", before, now:
            return now is not None and (before is None or now < before)
        case "num_repeats", int(before), int(now):
            return now < before
    return True


def check_rows_are_usable(options: CollectOptions) -> None:
    """Check, before a cluster is started for them, that some of the rows can be used, or all if they are strict.

    Raises:
        CollectError, RowError, JsonlError: as `UsableRows`.
    """
    with UsableRows(options) as rows:
        for _ in rows:
            if not options.strict_rows:
                return
        rows.check()


def shown_change(change: Change | str, options: CollectOptions) -> str:
    """Return what changed, with the name that the caller knows the setting by."""
    if isinstance(change, Change) and change.name == "num_repeats":
        change = change._replace(name=options.wording.num_repeats)
    return str(change)


def refusal(options: CollectOptions, *reasons: Change | str) -> CollectError:
    """Return the error of a run that cannot be resumed, with the first reasons."""
    shown = [shown_change(reason, options) for reason in reasons[:MAX_REASONS]]
    if len(reasons) > MAX_REASONS:
        shown.append(f"{len(reasons) - MAX_REASONS} more settings changed")
    return CollectError(
        f"{options.output}: cannot be resumed because {' and '.join(shown)}; "
        f"pass {options.wording.overwrite} to start over, or another {options.wording.output}"
    )
