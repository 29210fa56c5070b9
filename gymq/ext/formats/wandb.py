"""A run of gymq as a run of Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gymq.errors import UsageError
from gymq.ext.formats.run_report import COLUMNS, RunReport, first_line

MAX_RETRIES = 3  # of one request; wandb's default is an hour of them


class WandbRun:
    """The run that has the name of gymq's run as its id: the one that an earlier export created, or a new one.

    wandb's own environment sets the server and the user: WANDB_MODE, WANDB_API_KEY, WANDB_BASE_URL, WANDB_DIR.
    """

    def __init__(self, project: str, run: str) -> None:
        """Open the run in a project of Weights & Biases.

        Args:
            project: `PROJECT` or `ENTITY/PROJECT`.
            run: name of the run.

        Raises:
            UsageError: wandb is not installed, does not answer or refuses.
        """
        try:
            import wandb
        except ImportError:
            raise UsageError('wandb is not installed: pip install "gymq[wandb]"') from None
        entity, _, name = project.rpartition("/")
        if not name or "/" in entity:
            raise UsageError(f"--wandb takes PROJECT or ENTITY/PROJECT, not {project!r}")
        self._wandb = wandb
        settings = wandb.Settings(
            init_timeout=30.0,
            reinit="create_new",
            silent=True,
            # The command line, the state of a repository and the packages of this machine stay here.
            console="off",
            disable_git=True,
            save_code=False,
            x_disable_machine_info=True,
            x_disable_stats=True,
            x_save_requirements=False,
            x_file_stream_retry_max=MAX_RETRIES,
            x_file_transfer_retry_max=MAX_RETRIES,
            x_graphql_retry_max=MAX_RETRIES,
        )
        try:
            self._run = wandb.init(
                project=name, entity=entity or None, id=run, name=run, resume="allow", settings=settings
            )
        except (wandb.Error, OSError, ValueError) as error:
            raise UsageError(f"Weights & Biases cannot take the run: {first_line(error)}") from None
        if self._run.disabled:
            raise UsageError("wandb is disabled by WANDB_MODE; WANDB_MODE=offline writes files")

    def send(self, report: RunReport, outcomes: Path) -> str:
        """Write a report into the run and end it.

        Args:
            outcomes: all outcomes as Parquet; may be gone afterwards.

        Returns:
            Where it is.

        Raises:
            UsageError: it did not get there.
        """
        wandb, run = self._wandb, self._run
        config: Any = run.config  # it has no types
        try:
            config.update(report.settings(), allow_val_change=True)
            for point in report.curve():
                if point.num_outcomes >= run.starting_step:  # what an earlier export wrote is there
                    run.log(point.values, step=point.num_outcomes)
            run.log({"outcomes_table": wandb.Table(list(COLUMNS), report.rows, allow_mixed_types=True)})
            run.summary.update(report.figures())
            artifact = wandb.Artifact(f"{report.record.run}-outcomes", type="rollouts")
            artifact.add_file(str(outcomes), name="outcomes.parquet")
            logged = run.log_artifact(artifact)
            if not run.offline:
                logged.wait()
            where = f"{run.settings.sync_dir}; `wandb sync` sends it on" if run.offline else str(run.url)
            run.finish()
        except (wandb.Error, OSError, ValueError) as error:
            raise UsageError(f"Weights & Biases did not take all of the run: {first_line(error)}") from None
        return where
