"""Define the command `gymq dead-letters`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from gymq.cli.shared.parameters import ClusterUrl

Limit = Annotated[int | None, Parameter(validator=Number(gte=0))]
LetterNumber = Annotated[int, Parameter(validator=Number(gte=1, lte=2**64 - 1))]  # stream sequences


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LetterChoice:
    """Which letters, instead of their numbers.

    Attributes:
        run: all letters of this run.
        all_: all letters.
    """

    run: str | None = None
    all_: Annotated[bool, Parameter(name="--all")] = False


NONE = LetterChoice()

dead_letters = App(
    name="dead-letters",
    help="List, show, requeue or drop dead letters.",
    default_parameter=Parameter(negative=()),
)


@dead_letters.command(name="list")
async def list_(*, run: str | None = None, limit: Limit = None, nats: ClusterUrl = None, json: bool = False) -> int:
    """List dead letters, the newest last.

    They are rollouts that ended without a reward, and messages that could not become a rollout.

    Args:
        run: only letters of this run.
        limit: maximum number of letters to list, the newest; 0 for all; default: 50, with --json all.
        json: print one JSON object per line.
    """
    from gymq.ext.operate.letters import DEFAULT_LIMIT, list_letters

    if limit is None:
        limit = 0 if json else DEFAULT_LIMIT
    return await list_letters(run, limit, nats, json)


@dead_letters.command
async def show(number: LetterNumber, /, *, nats: ClusterUrl = None, json: bool = False) -> int:
    """Show one dead letter in full: the reason, where it happened, and the published message.

    Args:
        number: number of the letter, from `gymq dead-letters list`.
        json: print it as one JSON object.
    """
    from gymq.ext.operate.letters import show_letter

    return await show_letter(number, nats, json)


@dead_letters.command
async def requeue(*numbers: LetterNumber, choice: LetterChoice = NONE, nats: ClusterUrl = None) -> int:
    """Requeue dead letters: repeat their rollouts, and submit their submissions again.

    A rollout is repeated only if it still has no reward. Letters that were requeued, or need not be, are removed.
    Letters that cannot be requeued stay, and the exit status is 1.

    Args:
        numbers: numbers of letters, from `gymq dead-letters list`.
    """
    from gymq.ext.operate.letters import check_choice, requeue_letters

    check_choice(numbers, choice.run, choice.all_)
    return await requeue_letters(numbers, choice.run, nats)


@dead_letters.command
async def drop(*numbers: LetterNumber, choice: LetterChoice = NONE, nats: ClusterUrl = None) -> int:
    """Remove dead letters permanently. The failures of their rollouts stay stored.

    Args:
        numbers: numbers of letters, from `gymq dead-letters list`.
    """
    from gymq.ext.operate.letters import check_choice, drop_letters

    check_choice(numbers, choice.run, choice.all_)
    return await drop_letters(numbers, choice.run, nats)
