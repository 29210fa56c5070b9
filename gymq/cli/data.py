"""Define the command `gymq data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from gymq.cli.shared.parameters import NOWHERE, Overrides, WorkerSources

Count = Annotated[int, Parameter(validator=Number(gte=1))]
OptionalCount = Annotated[int | None, Parameter(validator=Number(gte=1))]
data = App(name="data", help="List, show, prepare and make data sets.", default_parameter=Parameter(negative=()))


@data.command
def make(
    environment: str,
    /,
    *,
    rows: Count = 100,
    tokens: OptionalCount = None,
    seed: int = 0,
    kind: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    tokenizer: str | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> int:
    """Make rows for an environment that can make them, such as ruler: of any length, the same for the same seed.

    Args:
        environment: name or file of the worker.
        rows: how many rows to make.
        tokens: how long each prompt may be, with the space for the answer; default: the environment's own choice.
        seed: other seeds give other rows.
        kind: only rows of these kinds, in turn; default: all kinds that the environment has.
        tokenizer: folder or Hugging Face name of the tokenizer that counts; default: an estimate that needs none.
        output: file to write, plain or ending in .gz or .zst; default: printed.
    """
    from gymq.cli.actions.data import make_data

    make_data(environment, rows, tokens, seed, kind, tokenizer, output)
    return 0


@data.command(name="list")
def list_data(
    *overrides: Overrides,
    sources: WorkerSources = NOWHERE,
    json: bool = False,
) -> int:
    """List the data sets that a configuration or a benchmark names, and whether their rows are there.

    Args:
        json: print one JSON object per line instead of a table.
    """
    from gymq.cli.actions.data import blocks_of, list_blocks
    from gymq.cli.shared.configuration import read_config

    list_blocks(blocks_of(read_config(sources, overrides, check=False), sources), as_json=json)
    return 0


@data.command
def show(
    name: str,
    /,
    *overrides: Overrides,
    sources: WorkerSources = NOWHERE,
    rows: Count = 2,
) -> int:
    """Show a data set: how many rows it has, their fields, and the first of them.

    NAME is a data set of the configuration, a benchmark, a file or folder, or one of the Hugging Face Hub, such as
    `hf:OWNER/NAME:train`.

    Args:
        rows: how many rows to show.
    """
    from gymq.cli.actions.data import rows_of, show_rows

    show_rows(rows_of(name, sources, overrides), rows)
    return 0


@data.command
def prepare(
    name: str,
    /,
    *overrides: Overrides,
    sources: WorkerSources = NOWHERE,
    network: bool = False,
    again: bool = False,
) -> int:
    """Make the rows of a data set ready: fetch them from the Hugging Face Hub, or run the script that makes them.

    NAME is a data set of the configuration (--config), a benchmark, or one of the Hub, such as `hf:OWNER/NAME:train`.
    The script runs in a sandbox without network.

    Args:
        network: run the script as you, without a sandbox, so that it can download; only for scripts that you trust.
        again: make rows that are there again.
    """
    import asyncio

    from gymq.cli.actions.data import prepare_data

    asyncio.run(prepare_data(name, sources, overrides, with_network=network, again=again))
    return 0
