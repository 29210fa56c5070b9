"""Auditing an environment: with correct, worthless and expensive replies."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

from gymq.config import Config, load
from gymq.errors import UsageError
from gymq.execution.loading.worker_source import WorkerSource, find_worker
from gymq.ext.audit.audited import PLANTED_SECRET, AuditedEnvironment
from gymq.ext.audit.checks import Checks
from gymq.ext.audit.gold import read_gold
from gymq.ext.audit.report import CHECKS, AuditReport, check_names
from gymq.ext.shared.checks import Check
from gymq.processes import file_modules
from gymq.protocol.instances import Kind
from gymq.redaction import hide, names_secret
from gymq.resources import Resources
from gymq.testing.harness import Harness
from gymq.testing.scripts import ScriptedJudge

_KINDS: tuple[Kind, ...] = ("resources",)
_POLICY = Path("workers/models/simulated_model/config.yaml")


async def audit(
    environment: str,
    *,
    only: Collection[str] = (),
    config: Config | None = None,
    options: dict[str, Any] | None = None,
    on_check: Callable[[Check], None] | None = None,
) -> AuditReport:
    """Audit an environment in this process.

    In the folder of the worker, `data/gold.jsonl` contains the correct replies (see `gymq.ext.audit.gold`), and
    `tests/mocks.py` may define an async context manager `mocked(worker)` that mocks external services.

    Args:
        environment: name, folder, file or configuration of a resources worker, or `module:Class`.
        only: names of checks and replies; by default all of `gymq.ext.audit.report.CHECKS`.
        config: the configuration with the worker's options; by default the config.yaml in its folder.
        options: options to use instead.
        on_check: called with the outcome of each check.

    Raises:
        UsageError: the environment cannot be audited, or a check is undecided.
        WorkerNotFound, OptionsError, ConfigError, JsonlError
    """
    chosen = check_names(only)
    source, config = _found(environment, config)
    cls = source.cls
    assert issubclass(cls, Resources)
    gold = read_gold(source)
    if options is None:
        options = _options_of(source, config)
    secrets = _secret_options(cls)
    hide(PLANTED_SECRET)  # as a worker process hides the secrets among its options
    judge = ScriptedJudge([rule for row in gold for rule in row.gold.judge])
    harness = Harness(cls, {**options, **dict.fromkeys(secrets, PLANTED_SECRET)}, models=judge)
    report = AuditReport(source.name)
    audited = AuditedEnvironment(source.name, harness, gold, judge, has_secrets=bool(secrets))
    async with _mocked(source, harness.author), audited:
        checks = Checks(audited, chosen)
        with audited.reading_logs():
            # The last two summarise all the others.
            for name in (name for name in CHECKS if name in chosen):
                check = await checks.run(name)
                report.checks.append(check)
                if on_check is not None:
                    on_check(check)
    report.verdicts = audited.verdicts
    report.slowest_s = round(audited.slowest_s, 4)
    report.limit_s = audited.limit_s
    return report


def _found(environment: str, config: Config | None) -> tuple[WorkerSource, Config | None]:
    path = Path(environment)
    if path.suffix not in (".yaml", ".yml"):
        return find_worker(environment, _KINDS), config
    if not path.is_file():
        raise UsageError(f"{environment}: the file does not exist; name the configuration of a worker")
    source = find_worker(str(path.absolute().parent), _KINDS)
    return source, config or load([str(path.absolute()), str(_POLICY)], env_yaml=None)


def _options_of(source: WorkerSource, config: Config | None) -> dict[str, Any]:
    if config is None:
        if source.config is None:
            return {}
        config = load([str(source.config), str(_POLICY)], env_yaml=None)
    of_kind = [found for found in config.instances if found.kind == source.kind]
    # The configuration of a copied worker names the original.
    found = [found for found in of_kind if source.is_run_by(found)] or of_kind
    return found[0].options if found else {}


def _secret_options(cls: type[Resources[Any]]) -> list[str]:
    """Return the names of the options that hold a secret."""
    fields = cls.Options.model_fields
    return [name for name, field in fields.items() if names_secret(name) and "str" in str(field.annotation).lower()]


def _mocked(source: WorkerSource, worker: Resources[Any]) -> AbstractAsyncContextManager[None]:
    if source.mocks is None:
        return nullcontext()
    mocked = getattr(file_modules.load(source.mocks), "mocked", None)
    if mocked is None:
        raise UsageError(f"{source.mocks}: there is no `mocked(worker)`; write an async context manager of this name")
    found: AbstractAsyncContextManager[None] = mocked(worker)
    return found
