"""Define the command `gymq score`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import ConfigFiles, Count, NatsUrl, OptionalCount, Overrides, WorkerSources
from gymq.defaults import SCORE_CONCURRENCY
from gymq.errors import UsageError


def score(
    *overrides: Overrides,
    rollouts: Path,
    output: Annotated[Path, Parameter(alias="-o")],
    rows: Path | None = None,
    config: ConfigFiles = (),
    resources: Path | None = None,
    concurrency: Count = SCORE_CONCURRENCY,
    limit: OptionalCount = None,
    failed_only: bool = False,
    nats: NatsUrl = None,
    overwrite: bool = False,
    json: bool = False,
) -> int:
    """Verify stored rollouts again, without a model: after a verifier changed, or where it failed.

    The verifiers run in this process. A cluster, in this folder or at --nats, is needed only for a verifier that asks a
    judge model. The exit status is 3 if rollouts could not be verified; they are written to `..._failures.jsonl` beside
    the output and can be scored again from there.

    Args:
        rollouts: rollouts of a run, or its failures, JSONL. Those with a `response` are verified.
        output: file for the rollouts with their new rewards, JSONL.
        rows: the materialised rows of the run, JSONL; without it the rows are taken from the rollouts, where fields
            of the old verdict may have replaced fields of the row.
        config: configuration file; may be given several times. It defines the verifier of each agent.
        resources: Python file with a verifier, also as FILE.py:CLASS, to use it for all rollouts without any
            configuration.
        concurrency: maximum number of concurrent verifications.
        limit: number of rollouts to verify, from the start of the file.
        failed_only: verify only rollouts with a reward below 1 or without one, and copy the others unchanged.
        nats: URL of a cluster whose judge models are asked.
        overwrite: replace the output of an earlier scoring.
        json: print the summary as JSON.
    """
    from gymq.cli.shared.configuration import JUDGE_IN_CONFIG, read_config
    from gymq.cluster import event_loop
    from gymq.config import record_instances
    from gymq.ext.scoring.actions import check_files, note_scored, only_verifier, report, score_rollouts
    from gymq.ext.scoring.score import ScoreOptions

    sources = WorkerSources(config=config, resources=resources)
    settings = read_config(sources, overrides, with_agent=False, judge_hint=JUDGE_IN_CONFIG)
    if not settings.instances:
        raise UsageError("no verifier given: pass --config FILE or --resources FILE.py")
    check_files(rollouts, rows, output, overwrite=overwrite)
    options = ScoreOptions(
        rollouts=rollouts,
        output=output,
        inputs=rows,
        concurrency=concurrency,
        limit=limit,
        failed_only=failed_only,
    )
    summary = event_loop.run(score_rollouts(options, settings, only_verifier(settings, resources), nats, quiet=json))
    report(summary, options, as_json=json)
    if limit is None and not failed_only and not summary.failures and not summary.without_response:
        note_scored(rollouts, record_instances(settings.instances))
    return 3 if summary.failures or summary.without_response else 0


SCORE = Command("Run", "Verify stored rollouts again, without a model.", "gymq.ext.scoring.command:score")
