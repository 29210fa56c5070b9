"""Define the command `gymq dead-letters`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from gymq.cli.parameters import NatsUrl

Limit = Annotated[int | None, Parameter(validator=Number(gte=0))]
LetterNumber = Annotated[int, Parameter(validator=Number(gte=1))]
All = Annotated[bool, Parameter(name="--all")]
dead_letters = App(
    name="dead-letters",
    help="List, show, requeue or drop dead letters.",
    default_parameter=Parameter(negative=()),
)


@dead_letters.command(name="list")
def list_(*, run: str | None = None, limit: Limit = None, nats: NatsUrl = None, json: bool = False) -> int:
    """List dead letters, the newest last.

    They are rollouts that ended without a reward, and messages that could not become a rollout.

    Args:
        run: only letters of this run.
        limit: number of letters to list, of the newest, 0 for all; default: 50, with --json all.
        nats: URL of a NATS server with the streams of gymq.
        json: print one JSON object per line.
    """
    import asyncio

    from gymq.cli.actions.dead_letters import DEFAULT_LIMIT, list_letters

    if limit is None:
        limit = 0 if json else DEFAULT_LIMIT
    return asyncio.run(list_letters(run, limit, nats, json))


@dead_letters.command
def show(number: LetterNumber, /, *, nats: NatsUrl = None, json: bool = False) -> int:
    """Show one dead letter in full: the reason, where it happened, and the published message.

    Args:
        number: number of the letter, from `gymq dead-letters list`.
        nats: URL of a NATS server with the streams of gymq.
        json: print it as one JSON object.
    """
    import asyncio

    from gymq.cli.actions.dead_letters import show_letter

    return asyncio.run(show_letter(number, nats, json))


@dead_letters.command
def replay(*numbers: LetterNumber, run: str | None = None, all_: All = False, nats: NatsUrl = None) -> int:
    """Requeue dead letters: repeat their rollouts, and submit their submissions again.

    A rollout is repeated only if it still has no reward. Letters that were requeued, or need not be, are removed.
    Letters that cannot be requeued stay, and the exit status is 1.

    Args:
        numbers: numbers of letters, from `gymq dead-letters list`.
        run: all letters of this run.
        all_: all letters.
        nats: URL of the cluster; default: the one running in this folder.
    """
    import asyncio

    from gymq.cli.actions.dead_letters import check_choice, replay_letters

    check_choice(numbers, run, all_)
    return asyncio.run(replay_letters(numbers, run, nats))


@dead_letters.command
def drop(*numbers: LetterNumber, run: str | None = None, all_: All = False, nats: NatsUrl = None) -> int:
    """Remove dead letters permanently. The failures of their rollouts stay stored.

    Args:
        numbers: numbers of letters, from `gymq dead-letters list`.
        run: all letters of this run.
        all_: all letters.
        nats: URL of a NATS server with the streams of gymq.
    """
    import asyncio

    from gymq.cli.actions.dead_letters import check_choice, drop_letters

    check_choice(numbers, run, all_)
    return asyncio.run(drop_letters(numbers, run, nats))
