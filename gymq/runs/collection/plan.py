"""The plan of a run: its options, with its files, its rows and the run of an earlier start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from gymq.authoring import Worker
from gymq.config import Config, fingerprint, record_instances
from gymq.data.datasets import Dataset
from gymq.data.disk_index import EarlierRows
from gymq.data.jsonl import JsonlError, JsonlFile
from gymq.data.materialise import MaterialiseOptions
from gymq.data.rows import digest_without_task
from gymq.data.run_changes import Change, changed_fields, changed_options
from gymq.data.run_files import COMPRESSED, Manifest, RunFiles
from gymq.defaults import MAX_TIMEOUT_S
from gymq.errors import UsageError
from gymq.protocol.instances import Instance
from gymq.redaction import hide_options
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.preflight import RowTypes, policies, probe_models
from gymq.runs.collection.usable_rows import UsableRows

RESIZING = ("num_repeats", "limit", "agent_name")
"""Settings that may change if all rows there are stay as they are."""


class RunPlan:
    """What one start of a run is to do.

    Attributes:
        options: what was asked for.
        files: files of the run.
        verifiers: check its rows, where they are known here.
        models: the models of its cluster, as tables name them.
    """

    def __init__(self, options: CollectOptions, verifiers: RowTypes | None = None, models: Sequence[str] = ()) -> None:
        """Plan a run.

        Raises:
            UsageError: the output is no name of a file.
        """
        self.options = options
        self.files = RunFiles(options.output)
        self.verifiers = verifiers or RowTypes()
        self.models = list(models)

    @classmethod
    def with_workers(cls, options: CollectOptions, config: Config, made: Mapping[str, Worker] | None = None) -> RunPlan:
        """Plan a run with the workers of a configuration; it may be empty if a running cluster has them.

        Args:
            made: workers that are there already, by the names of their instances.
        """
        hide_options([*(one.options for one in config.instances), options.materialise.responses_create_params])
        digest = fingerprint(config.tree) if config.instances else ""
        options = replace(options, config=record_instances(config.instances), config_digest=digest)
        return cls(options, RowTypes(config.instances, made), policies(config))

    @cached_property
    def dataset(self) -> Dataset:
        """The rows to roll out, found once: of the Hub, that asks it and compares checksums."""
        return Dataset(self.options.input, of_a_list=self.options.rows_of_a_list)

    def rows(self, *, known: EarlierRows | None = None, on_problem: Callable[[str], None] | None = None) -> UsableRows:
        """Return a pass over the rows; the arguments are those of `UsableRows`."""
        return UsableRows(self.dataset, self.options, self.verifiers.check, known=known, on_problem=on_problem)

    def keep_earlier(self) -> None:
        """Let what is at the output be resumed from now on, even if it was to be replaced."""
        self.options = replace(self.options, overwrite=False)

    def check(self) -> None:
        """Check, before a cluster is started, that rows can be used and that a run that is there can be resumed."""
        try:
            with self.files.locked():
                manifest = self.earlier()
                if manifest is None:
                    self._check_rows_are_usable()
                else:
                    self._check_rows_are_kept(manifest)
        except OSError as error:
            raise UsageError(f"{error.filename or self.options.output}: {error.strerror}") from None

    def earlier(self) -> Manifest | None:
        """Return the manifest of the run that is resumed, None if one begins, after a check of the files.

        Raises:
            UsageError: something is missing or in the way.
        """
        self.check_paths()
        if self.options.overwrite:
            return None
        manifest = self.files.read_manifest()
        if manifest is None and self.files.output.exists():
            raise self.refusal(f"{self.files.manifest.name} is not beside it")
        return manifest

    def check_paths(self) -> None:
        """Check the names of what is read and written.

        Raises:
            UsageError: something is missing or in the way.
        """
        options, files = self.options, self.files
        if not 0 < options.rollout_timeout_s <= MAX_TIMEOUT_S:
            raise UsageError(
                f"a rollout may take between 0 and {MAX_TIMEOUT_S} seconds, not {options.rollout_timeout_s:g}"
            )
        for path in (options.input, options.output):
            if any("\ud800" <= letter <= "\udfff" for letter in str(path)):  # bytes that Python could not decode
                raise UsageError(f"{str(path)!a}: the name of the file is not UTF-8, so it cannot be kept with the run")
        try:
            read = [file.resolve() for file in self.dataset.files]
        except JsonlError as error:
            raise UsageError(str(error)) from None
        if options.output.resolve() in read:
            raise UsageError(f"input and output are the same file: {options.output}")
        if any(file.resolve() in read for file in files.all()):
            raise UsageError(f"the input {options.input} belongs to the run at the output: choose another output")
        if options.input.is_dir() and options.output.resolve().is_relative_to(options.input.resolve()):
            raise UsageError(f"the output {options.output} is in the input folder: choose another place")
        if options.output.suffix in COMPRESSED:
            raise UsageError(f"the output {options.output} would not be compressed: give a name that ends in .jsonl")
        if options.output.is_dir():
            raise UsageError(f"the output {options.output} is a folder: name a file in it")
        if shared := files.shared():
            raise UsageError(
                f"{shared} belongs to a run with another output than {options.output}: choose another name"
            )

    def changes(self, manifest: Manifest) -> tuple[list[str], list[Change]]:
        """Compare an earlier start with this one.

        Returns:
            Sentences about changes that do not change what is asked, and the changes of the number of rollouts.

        Raises:
            UsageError: a setting that determines the rollouts changed.
        """
        before, now = MaterialiseOptions().model_dump(mode="json") | manifest.settings, self.options.settings()
        fixed = [{name: value for name, value in given.items() if name not in RESIZING} for given in (before, now)]
        asked, not_asked = self._changed_workers(manifest)
        if refused := [*changed_fields(*fixed), *asked]:
            raise self.refusal(*refused)
        resized = [Change(name, before[name], now[name]) for name in RESIZING if before[name] != now[name]]
        return not_asked, resized

    def _changed_workers(self, manifest: Manifest) -> tuple[list[Change], list[str]]:
        options = self.options
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
        raise self.refusal(reason)

    def _check_rows_are_usable(self) -> None:
        with self.rows() as rows:
            for _ in rows:
                if not self.options.strict_rows:
                    return
            rows.check()

    def _check_rows_are_kept(self, manifest: Manifest) -> None:
        _, resized = self.changes(manifest)
        if not self.files.materialised.exists() or manifest.input_digest == self.dataset.digest():
            return
        with EarlierRows() as known, self.rows(known=known) as rows:
            self.add_earlier_rows(known)
            for _ in rows:
                pass
            self.check_kept(known, resized)

    def add_earlier_rows(self, known: EarlierRows) -> None:
        """Add the rows of an earlier start, if they are there."""
        for row in self.files.rows() if self.files.materialised.exists() else ():
            known.add(row.task_index, row.rollout_index, digest_without_task(row.json))

    def check_kept(self, known: EarlierRows, resized: Sequence[Change]) -> None:
        """Check that a run whose rows changed keeps some of them, and that no setting asks for fewer rollouts.

        Raises:
            UsageError: it is to be another run.
        """
        if known.num_missing and (smaller := [change for change in resized if _is_smaller(change)]):
            raise self.refusal(*smaller)
        if known.num_missing and not known.num_tasks()[1]:
            raise self.refusal(f"none of its rows is in {self.dataset.name}")

    def shown(self, change: Change | str) -> str:
        """Return what changed, with the name that the caller knows the setting by."""
        if isinstance(change, Change) and change.name == "num_repeats":
            change = change._replace(name=self.options.wording.num_repeats)
        return str(change)

    def refusal(self, *reasons: Change | str) -> UsageError:
        """Return the error of a run that cannot be resumed, with the first reasons."""
        shown = [self.shown(reason) for reason in reasons[:5]]
        if len(reasons) > len(shown):
            shown.append(f"{len(reasons) - len(shown)} more settings changed")
        wording = self.options.wording
        return UsageError(
            f"{self.options.output}: cannot be resumed because {' and '.join(shown)}; "
            f"pass {wording.overwrite} to start over, or another {wording.output}"
        )

    def has_all_rollouts(self) -> bool:
        """Return whether the output has all rollouts that are asked for, so that no model will be."""
        manifest = None if self.options.overwrite else self.files.read_manifest()
        if manifest is None or not self.files.output.exists() or manifest.settings != self.options.settings():
            return False
        if manifest.input_digest != self.dataset.digest():
            return False
        return sum(1 for _ in JsonlFile(self.files.output)) >= manifest.num_rollouts

    async def probe(self, specs: Sequence[Instance], report: Callable[[str], None]) -> None:
        """Ask the endpoints of models once, as `probe_models`, unless all rollouts are there."""
        if not await asyncio.to_thread(self.has_all_rollouts):
            await probe_models(specs, report)


def _is_smaller(change: Change) -> bool:
    """Return whether a changed setting asks for fewer rollouts than before, judging by the numbers alone."""
    match change.name, change.before, change.now:
        case "limit", before, now:
            return now is not None and (before is None or now < before)
        case "num_repeats", int(before), int(now):
            return now < before
    return True
