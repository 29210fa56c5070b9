"""Define the command `gymq demo`."""

from __future__ import annotations

from gymq.cli.shared.parameters import LogLevel, WorkerSources


def demo(*, num_repeats: int = 16, log_level: LogLevel = "warning") -> int:
    """Run the demo: 225 tasks of four environments, with a simulated model. It needs no key and no network.

    The rollouts are written to `runs/demo/demo.jsonl`; those of an earlier demo are replaced. An environment whose
    Python packages are not installed is left out.

    Args:
        num_repeats: rollouts per task.
    """
    from gymq.cli.actions.demo import FOLDER, SOURCE, left_out_here, rows_without
    from gymq.cli.collect import collect

    config, rows = SOURCE / "config.yaml", SOURCE / "rows.jsonl"
    left_out = left_out_here()
    if left_out:
        rows = rows_without(left_out, rows)
    return collect(
        *(f"~{name}" for name in left_out),
        input=rows,
        output=FOLDER / "demo.jsonl",
        sources=WorkerSources(config=(config,)),
        num_repeats=num_repeats,
        overwrite=True,
        log_level=log_level,
    )
