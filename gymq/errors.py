"""The root of all errors, and the boundaries that they cross.

Every exception class of gymq and of the workers it ships derives from `GymqError`. Each kind has one boundary, at which
it becomes what the other side understands:

- A command (`gymq.cli.main`) prints the sentence of any of them and exits with status 2. What nobody tells apart from
  other mistakes is a `UsageError`.
- `RolloutError` and its subclasses end a call as a `Fail` and a rollout as a `Failure`, with a failure class; the table
  `gymq.failures.RETRIES` decides what is retried.
- `ToolError` becomes the result of a tool call, which the model reads; the rollout continues.
- `BusError` and its subclasses come from NATS. Workers wait while NATS is away; a command reports them.
- `BadMessage` and `BadToken` refuse input from outside: a request is answered with a `Fail`, and what is stored becomes
  a dead letter.
- `StatusError` is an HTTP status with a body.

The message is one sentence for the person who can do something about it: `PLACE: what is wrong; what to do`. Any other
exception is a fault of gymq or of an author's code and is reported with its traceback. Errors that are also a
`ValueError` may be raised by validators: pydantic and msgspec turn these into their own.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class GymqError(Exception):
    """Report what could not be done, in one sentence for the person who can do something about it."""


class UsageError(GymqError):
    """Report that what was asked cannot be done, or not as things are; one sentence."""


class PortTaken(UsageError):
    """Report an address that cannot be listened on, since another program does; one sentence."""


class BusError(GymqError):
    """Report that NATS could not be reached, or refused; one sentence."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean a or b?` for the known names close to `name`, or nothing."""
    close = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""
