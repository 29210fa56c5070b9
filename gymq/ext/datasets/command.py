"""Define the command `gymq data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import NOWHERE, Count, OptionalCount, Overrides, WorkerSources

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
    """Generate rows for an environment that can, such as ruler: of any length, the same for the same seed.

    Args:
        environment: name or file of the worker.
        rows: number of rows to generate.
        tokens: maximum length of a prompt in tokens, with room for the answer; default: the environment's own.
        seed: seed of the generator.
        kind: generate only these kinds of rows, in turn; default: all kinds that the environment has.
        tokenizer: folder or Hugging Face name of the tokenizer that counts the tokens; default: an estimate.
        output: file to write, compressed if its name ends in .gz or .zst; default: standard output.
    """
    from gymq.ext.datasets.actions import make_data

    make_data(environment, rows, tokens, seed, kind, tokenizer, output)
    return 0


@data.command(name="list")
def list_data(
    *overrides: Overrides,
    sources: WorkerSources = NOWHERE,
    json: bool = False,
) -> int:
    """List the data sets that a configuration or a benchmark names, and whether their rows are available.

    Args:
        json: print one JSON object per line instead of a table.
    """
    from gymq.cli.shared.configuration import read_config
    from gymq.cli.shared.datasets import blocks_of
    from gymq.ext.datasets.actions import list_blocks

    list_blocks(blocks_of(read_config(sources, overrides, check=False, needs_policy=False), sources), as_json=json)
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
    from gymq.ext.datasets.actions import rows_of, show_rows

    show_rows(rows_of(name, sources, overrides), rows)
    return 0


@data.command
async def prepare(
    name: str,
    /,
    *overrides: Overrides,
    sources: WorkerSources = NOWHERE,
    network: bool = False,
    again: bool = False,
) -> int:
    """Prepare the rows of a data set: fetch them from the Hugging Face Hub, or run the script that generates them.

    NAME is a data set of the configuration (--config), a benchmark, or one of the Hub, such as `hf:OWNER/NAME:train`.
    The script runs in a sandbox without network.

    Args:
        network: run the script as you, without a sandbox, so that it can download; only for scripts that you trust.
        again: prepare rows again that exist already.
    """
    from gymq.ext.datasets.actions import prepare_data

    await prepare_data(name, sources, overrides, with_network=network, again=again)
    return 0


DATA = Command("Run", "List, show, prepare and make data sets.", "gymq.ext.datasets.command:data")
