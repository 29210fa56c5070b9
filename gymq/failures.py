"""The failures of a rollout, as exceptions, and the retries after each.

Each error carries its class, stage and whether a retry may help. The table `RETRIES` says for each class how often and
after which pauses a running cluster retries; `gymq.data.resume` decides what a collection retries when it is resumed.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from gymq.errors import GymqError, did_you_mean
from gymq.protocol.messages import MAX_TEXT_CHARS, FailureClass, Stage
from gymq.redaction import redact


@dataclass(frozen=True)
class Retry:
    """The number of attempts, and the pauses in between.

    The pauses grow from the first to the longest. Each is shortened at random, so that calls that failed together are
    not retried together.
    """

    tries: int  # at most, the first one included
    first_pause_s: float
    longest_pause_s: float
    growth: float = 2.0  # of a pause over the one before
    budget_s: float = math.inf  # no further try begins later than this after the first failure
    jitter: float = 0.5  # by what share of it a pause is shortened at most

    def pause_s(self, failed: int, *, left_s: float, spent_s: float = 0.0) -> float | None:
        """Return the seconds until the next attempt; None if there is none left.

        Args:
            failed: attempts that have failed so far.
            left_s: seconds until the deadline.
            spent_s: seconds since the first failure.
        """
        pause = min(self.first_pause_s * self.growth ** min(failed - 1, 32), self.longest_pause_s)
        if failed >= self.tries or pause >= left_s or spent_s + pause > self.budget_s:
            return None
        return pause * random.uniform(1.0 - self.jitter, 1.0)


@dataclass(frozen=True)
class Retries:
    """The retries after a failure of one class, from the cheapest to the most expensive. None: no such retry."""

    call: Retry | None = None  # the same request, by its sender, where it finds the failure (`gymq.bus.rpc.calls`)
    effect: Retry | None = None  # the request of an agent, after its calls failed (`gymq.agent`)
    verdict: Retry | None = None  # the verdict on a response that is there (`gymq.agent`)
    rollout: Retry | None = None  # the whole rollout, in a new session (`gymq.execution.attempts`)


_NEVER = Retries()
_ROLLOUT = Retry(tries=3, first_pause_s=0.1, longest_pause_s=5.0, growth=4.0)
# The response is paid for, so a judge or a service behind the verifier is given some seconds to recover.
_VERDICT = Retry(tries=3, first_pause_s=0.5, longest_pause_s=5.0, growth=10.0)
# The end of this task; a collection may submit it again.
_ONLY_LATER = Retry(tries=1, first_pause_s=0.1, longest_pause_s=0.1)

RETRIES: dict[FailureClass, Retries] = {
    # Says something about the row, or about code: the next try would end the same.
    FailureClass.INVALID_TASK: _NEVER,
    FailureClass.BAD_REQUEST: _NEVER,
    FailureClass.NOT_STORABLE: _NEVER,
    FailureClass.AGENT_FAILED: _NEVER,
    # There is no time left, or the rollout is no longer wanted.
    FailureClass.DEADLINE_EXCEEDED: _NEVER,
    FailureClass.CANCELLED: _NEVER,
    # Its worker has repeated what is worth repeating at its endpoint; another worker may do better.
    FailureClass.MODEL_FAILED: Retries(rollout=_ROLLOUT),
    FailureClass.VERIFIER_FAILED: Retries(verdict=_VERDICT, rollout=_ROLLOUT),
    FailureClass.JUDGE_FAILED: Retries(verdict=_VERDICT, rollout=_ROLLOUT),
    FailureClass.COMPONENT_FAILED: Retries(verdict=_VERDICT, rollout=_ROLLOUT),
    # A new session, and all the turns in it again. The rollouts that lost theirs together would make the same calls at
    # the same time again, next to the one that killed the worker; so they start over at quite different times.
    FailureClass.SESSION_LOST: Retries(
        rollout=Retry(tries=5, first_pause_s=1.0, longest_pause_s=10.0, growth=4.0, jitter=1.0)
    ),
    # The call did not run. A worker that is started again is back within the budget of the call; an agent waits on, a
    # model takes minutes to load. Only time ends that: the number of tries is out of reach.
    FailureClass.NO_WORKER: Retries(
        call=Retry(tries=1000, first_pause_s=0.05, longest_pause_s=0.5, budget_s=10.0),
        effect=Retry(tries=10_000, first_pause_s=1.0, longest_pause_s=1.0),
        rollout=_ROLLOUT,
    ),
    # The call may have run. Model calls and seeds may run twice; a session answers a repeated call from memory. What
    # loses three or four workers, the last while it ran there alone, is what kills them: the next try is refused, with
    # the reason (`gymq.bus.rpc.quarantine`).
    FailureClass.WORKER_LOST: Retries(
        call=Retry(tries=5, first_pause_s=0.05, longest_pause_s=2.0), rollout=_ONLY_LATER
    ),
    # Room comes with time, so again only time ends it.
    FailureClass.SATURATED: Retries(
        call=Retry(tries=10_000, first_pause_s=0.05, longest_pause_s=2.0), rollout=_ROLLOUT
    ),
    # Its policy has moved on; the next try is made by the newest. Updates that always come faster than a rollout ends
    # are a matter of settings.
    FailureClass.STALE: Retries(rollout=Retry(tries=4, first_pause_s=0.1, longest_pause_s=5.0, growth=4.0)),
    # The task ended its process while it ran there alone, or was delivered too often.
    FailureClass.REDELIVERED_TOO_OFTEN: Retries(rollout=_ONLY_LATER),
}

# A failure of these classes says nothing about the row: trying the rollout again may succeed.
RETRYABLE = frozenset(failure_class for failure_class, retries in RETRIES.items() if retries.rollout is not None)

# What breaks while NATS is away says nothing about the call or the rollout, and is not counted with their failures.
INTERRUPTED = Retry(tries=1000, first_pause_s=0.1, longest_pause_s=0.5)

# A session that others took with them says little about the rollout, but each new attempt is paid for.
SESSION_GONE = Retry(tries=10, first_pause_s=0.1, longest_pause_s=5.0, growth=4.0)

MAX_FRAMES = 10
"""Frames of an author's traceback that a failure shows."""

_PACKAGE = str(Path(__file__).parent) + os.sep
_SITE = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})
_LIBRARIES = (sysconfig.get_path("stdlib") + os.sep, *_SITE)
_SHIPPED = _PACKAGE + "workers" + os.sep  # workers are an author's code, wherever they lie


class CancelReason(Enum):
    """Why a task of the event loop is cancelled, as the message of its CancelledError."""

    HANDED_OVER = "handed over"  # another agent process resumes the rollout


def _is_installed(file: str) -> bool:
    return file.startswith(_LIBRARIES)


def describe_author_error(error: BaseException) -> str:
    """Describe an exception of an author's code: its class, its text, and the frames of the author's own code.

    An author whose code is itself an installed package gets all frames from it on.

    Returns:
        A line with class and text, then for each of the last `MAX_FRAMES` frames a line `FILE:LINE in FUNCTION: CODE`.
    """
    lines = [f"{type(error).__name__}: {error}{_meant(error)}"]
    lines += [
        f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in _frames_of_author(error)[-MAX_FRAMES:]
    ]
    return "\n".join(lines)


def say_author_error(error: BaseException) -> str:
    """Return class and text of an exception of an author's code, and the file and line of that code that caused it.

    All of it is one line, except for a syntax error, which has the line of code below it, and a caret.
    """
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.text is not None:
        code = error.text.rstrip()
        indented = len(code) - len(code.lstrip())
        caret = " " * ((error.offset or 1) - 1 - indented)
        return f"{kind}: {error.msg} ({error.filename}:{error.lineno})\n  {code.lstrip()}\n  {caret}^"
    frames = [frame for frame in _frames_of_author(error) if not frame.filename.startswith(("<", _PACKAGE))]
    own = [frame for frame in frames if not _is_installed(frame.filename)]
    where = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    return f"{kind}: {' '.join(str(error).split())}{_meant(error)}{where}"


def _meant(error: BaseException) -> str:
    """Return the names of a module that are close to one that it lacks, as `did_you_mean` says them."""
    module: object = None
    name: str | None = None
    if isinstance(error, AttributeError):
        module, name = error.obj, error.name
    elif isinstance(error, ImportError) and (wanted := re.match(r"cannot import name '(\w+)'", str(error))):
        module, name = sys.modules.get(error.name or ""), wanted[1]
    if not isinstance(module, ModuleType) or name is None:
        return ""
    return did_you_mean(name, getattr(module, "__all__", dir(module)))


class Place(NamedTuple):
    """A line of code that runs."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def innermost_of_author(stack: Iterable[Place]) -> Place | None:
    """Return where in an author's code a stack is; None: gymq or the event loop itself is at work.

    Args:
        stack: the innermost place first.
    """
    called = list(itertools.takewhile(lambda place: not _is_gymq(place.file), stack))
    own = [place for place in called if not _is_installed(place.file) and not place.file.startswith("<frozen ")]
    shipped = [place for place in called if place.file.startswith(_SHIPPED)]
    in_files = [place for place in own if not place.file.startswith("<")]  # not a string that is executed
    # An author whose code is itself an installed package.
    packages = [place for place in called if place.file.startswith(_SITE)]
    return next(iter(in_files or shipped or own or packages), None)


def _is_gymq(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_SHIPPED)


def _frames_of_author(error: BaseException) -> list[traceback.FrameSummary]:
    frames = [found for found in traceback.extract_tb(error.__traceback__) if not found.filename.startswith("<frozen ")]
    while frames and _is_gymq(frames[0].filename):
        del frames[0]
    own = [found for found in frames if found.filename.startswith(_SHIPPED) or not _is_installed(found.filename)]
    return own or frames


class RolloutError(GymqError):
    """A rollout, or a call inside one, that has no result.

    Attributes:
        failure_class: why.
        stage: where; None until the code that knows fills it in.
        retryable: whether a retry may succeed; by default what the table says of rollouts.
        curable: whether the set-up is at fault (a key, a URL, a package that is missing) and not the rollout. A curable
            failure does not count as an attempt: the next start of the collection retries the rollout.
        num_lost: workers that were lost while they had the call that failed.
        is_innocent: whether the worker of a session ended while it worked on something else, or on nothing.
    """

    num_lost = 0
    is_innocent = False

    def __init__(
        self,
        failure_class: FailureClass,
        message: str,
        *,
        stage: Stage | None = None,
        retryable: bool | None = None,
        curable: bool = False,
    ) -> None:
        """Describe a failure.

        Args:
            failure_class: why there is no result.
            message: one sentence for people; secrets in it are hidden.
            stage: where it happened, if the caller knows.
            retryable: whether a retry may succeed; None: as `RETRIES` says of the class.
            curable: whether the set-up is at fault.
        """
        super().__init__(redact(message))  # it is stored for everybody to read
        self.failure_class = failure_class
        self.stage = stage
        self.curable = curable
        self.retryable = failure_class in RETRYABLE if retryable is None else retryable

    @property
    def message(self) -> str:
        """The sentence for people."""
        return str(self.args[0])

    @property
    def retries(self) -> Retries:
        """The retries of this error. One that is called retryable against the table is retried as a whole rollout."""
        if not self.retryable:
            return _NEVER
        return RETRIES[self.failure_class] if self.failure_class in RETRYABLE else Retries(rollout=_ROLLOUT)

    def as_fields(self) -> dict[str, Any]:
        """Return the fields that every outcome without a verdict has of this error."""
        return {
            "failure_class": self.failure_class,
            "stage": self.stage or Stage.AGENT,
            "message": self.message[:MAX_TEXT_CHARS],
            "retryable": self.retryable,
            "curable": self.curable,
        }

    def at(self, stage: Stage) -> RolloutError:
        """Return this error, with the stage filled in if it was missing."""
        self.stage = self.stage or stage
        return self


@contextmanager
def failing_as(failure_class: FailureClass, beginning: str, stage: Stage | None = None) -> Iterator[None]:
    """Turn what an author's code in a block raises into the failure of a rollout.

    Args:
        failure_class: of errors that are not a RolloutError already.
        beginning: of their message.
        stage: where the block runs, unless the error says so itself.

    Raises:
        RolloutError: the block failed.
    """
    try:
        yield
    except RolloutError as error:
        error.stage = error.stage or stage
        raise
    except Exception as error:
        text = f"{beginning}: {describe_author_error(error)}"
        raise RolloutError(failure_class, text, stage=stage, curable=isinstance(error, ImportError)) from error


class LoopBlocked(BaseException):
    """Raised in a call that blocks the event loop of its process (`gymq.cluster.loop_watch`), so that the call fails.

    Not an Exception: what an author catches must not keep it.
    """


class InvalidTask(RolloutError):
    """The row, or the response to verify, does not fit; the rollout ends as `invalid_task`, without a retry."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureClass.INVALID_TASK, message)


class JudgeFailed(RolloutError):
    """The judge model could not be asked, or gave no usable reply. Not a wrong answer; the verdict is retried.

    Pass `curable=True` if the set-up is at fault, such as a key that is refused.
    """

    def __init__(self, message: str, *, curable: bool = False) -> None:
        super().__init__(FailureClass.JUDGE_FAILED, message, curable=curable)


class ComponentFailed(RolloutError):
    """A service the verifier depends on could not be asked. Not a wrong answer; the verdict is retried."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureClass.COMPONENT_FAILED, message)


class ToolError(GymqError):
    """A tool refused a call. The model reads `message`; the rollout continues.

    Attributes:
        status: as of HTTP: 400 session not seeded, 404 unknown tool, 422 arguments do not fit, 500 the tool failed.
        message: one sentence for the model.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def no_such_tool(name: str) -> ToolError:
    """Return the error for a call of a tool that does not exist, or that the model may not call."""
    return ToolError(404, f"there is no tool named {name!r}")
