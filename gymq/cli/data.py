"""Define the command `gymq data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

Count = Annotated[int, Parameter(validator=Number(gte=1))]
OptionalCount = Annotated[int | None, Parameter(validator=Number(gte=1))]
data = App(name="data", help="Make data sets of environments.", default_parameter=Parameter(negative=()))


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
