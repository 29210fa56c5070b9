"""A run of gymq as a run of MLflow."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gymq.errors import UsageError
from gymq.ext.formats.run_report import COLUMNS, RunReport, first_line
from gymq.redaction import redact

RUN_TAG = "gymq.run"
"""The tag by which an export finds the run of an earlier one."""

TABLE_FILE = "outcomes_table.json"

_TABLES_TAG = "mlflow.loggedArtifacts"  # where MLflow's page looks for tables
_NOT_IN_NAMES = re.compile(r"[^\w. :/-]")

# Unless somebody says otherwise. Left alone, MLflow tries for minutes to reach a server that is not there.
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class MlflowRun:
    """The run of an experiment that is tagged with the name of gymq's run: of an earlier export, or a new one.

    MLflow's own environment sets the server and the user: MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN.
    """

    def __init__(self, experiment: str, run: str) -> None:
        """Open the run in an experiment of MLflow.

        Args:
            experiment: its name; it is created if it does not exist.
            run: name of the run.

        Raises:
            UsageError: mlflow is not installed, or its server does not answer or refuses.
        """
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        try:
            import mlflow
            from mlflow.entities import Metric, Param, RunTag
            from mlflow.exceptions import MlflowException
        except ImportError:
            raise UsageError('mlflow is not installed: pip install "gymq[mlflow]"') from None
        if not experiment:
            raise UsageError("--mlflow takes the name of an experiment")
        self._metric, self._param, self._tag = Metric, Param, RunTag
        self._errors = (MlflowException, ImportError, OSError, ValueError)
        self._uri = redact(mlflow.get_tracking_uri())
        try:
            self._client = mlflow.MlflowClient()
            known = self._client.get_experiment_by_name(experiment)
            self._experiment = known.experiment_id if known else self._client.create_experiment(experiment)
            found = self._client.search_runs([self._experiment], f"tags.`{RUN_TAG}` = '{run}'", max_results=1)
        except self._errors as error:
            raise UsageError(f"MLflow at {self._uri} cannot take the run: {first_line(error)}") from None
        self._run = found[0] if found else None

    def send(self, report: RunReport, outcomes: Path) -> str:
        """Write a report into the run and end it.

        Args:
            outcomes: all outcomes as Parquet.

        Returns:
            Where it is.

        Raises:
            UsageError: it did not get there.
        """
        try:
            return self._send(report, outcomes)
        except self._errors as error:
            raise UsageError(f"MLflow at {self._uri} did not take all of the run: {first_line(error)}") from None

    def _send(self, report: RunReport, outcomes: Path) -> str:
        client, name = self._client, report.record.run
        run = self._run or client.create_run(
            self._experiment, _milliseconds(report.record.created_at) or None, {RUN_TAG: name}, name
        )
        run_id = run.info.run_id
        # A parameter in MLflow cannot be changed, so those of the record are written once.
        params = [
            self._param(key, ", ".join(value) if isinstance(value, list) else str(value))
            for key, value in report.settings().items()
            if key not in run.data.params
        ]
        tables = json.dumps([{"path": TABLE_FILE, "type": "table"}])
        client.log_batch(run_id, params=params, tags=[self._tag(_TABLES_TAG, tables)])
        for batch in _batches(self._metrics(report)):
            client.log_batch(run_id, batch)
        client.log_dict(run_id, {"columns": COLUMNS, "data": report.rows}, TABLE_FILE)
        client.log_artifact(run_id, str(outcomes))
        client.set_terminated(run_id)
        if self._uri.startswith("http"):
            return f"{self._uri.rstrip('/')}/#/experiments/{self._experiment}/runs/{run_id}"
        return f"run {run_id} at {self._uri}"

    def _metrics(self, report: RunReport) -> Iterator[Any]:
        now = _milliseconds(time.time())
        for name, value in _valid_names(report.figures()).items():
            # Always at step 0: of equal steps the latest counts, also where a run has become shorter.
            yield self._metric(name, value, now, 0)
        for point in report.curve():
            # A time that depends on the outcome alone: a point that was written before is the same again.
            for name, value in _valid_names(point.values).items():
                yield self._metric(name, value, _milliseconds(point.at), point.num_outcomes)


def _valid_names(figures: dict[str, float]) -> dict[str, float]:
    """Return the figures under names that MLflow accepts; names that would collide get numbers."""
    named: dict[str, float] = {}
    for name, value in figures.items():
        valid = _NOT_IN_NAMES.sub("_", name.replace("@", "_at_"))
        valid = re.sub(r"/(\.*)$", r"/_\1", valid)[:240]
        unique, number = valid, 1
        while unique in named:
            number += 1
            unique = f"{valid}_{number}"
        named[unique] = value
    return named


def _batches(metrics: Iterable[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for metric in metrics:
        batch.append(metric)
        if len(batch) == 1000:
            yield batch
            batch = []
    yield batch


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
