"""Define the command `gymq demo`."""

from __future__ import annotations

from gymq.cli.shared.parameters import Count, LogLevel, WorkerSources


def demo(*, num_repeats: Count = 16, log_level: LogLevel = "warning") -> int:
    """Run the demo: 225 tasks of four environments, with a simulated model. It needs no key and no network.

    The rollouts are written to `runs/demo/demo.jsonl`. The same command resumes a demo that was interrupted; any other
    earlier demo is replaced. An environment whose Python packages are not installed is left out.

    Args:
        num_repeats: rollouts per task.
    """
    from gymq.cli.actions.demo import FOLDER, SOURCE, is_unfinished, left_out_here, rows_without
    from gymq.cli.collect import collect
    from gymq.cli.shared.configuration import read_config

    sources, rows = WorkerSources(config=(SOURCE / "config.yaml",)), SOURCE / "rows.jsonl"
    left_out = left_out_here()
    if left_out:
        rows = rows_without(left_out, rows)
    overrides, output = [f"~{name}" for name in left_out], FOLDER / "demo.jsonl"
    return collect(
        *overrides,
        rows=rows,
        output=output,
        sources=sources,
        num_repeats=num_repeats,
        overwrite=not is_unfinished(output, rows, num_repeats, read_config(sources, overrides)),
        log_level=log_level,
    )
