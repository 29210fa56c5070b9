"""When to retry an HTTP request, and when to stop. Every class of trouble has its own bound."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

import gymq


@dataclass(frozen=True)
class Policy:
    """How often a class of trouble is met with another try, and the waits in between, which double."""

    name: str
    tries: int
    first_wait_s: float
    longest_wait_s: float


# Refused, no such host, no answer to the handshake. With CONNECT_TIMEOUT_S it is reported within ten seconds.
UNREACHABLE = Policy("unreachable", tries=3, first_wait_s=0.25, longest_wait_s=0.5)
CONNECT_TIMEOUT_S = 3.0
# The endpoint, or a proxy in front of it, works but is full: 429, 502, 503, 504, 520, 529.
OVERLOADED = Policy("overloaded", tries=8, first_wait_s=1.0, longest_wait_s=30.0)
# The connection broke, the body ended early, or the endpoint failed: 408, 409, 425, 499, 500 and the other 5xx.
BROKEN = Policy("broken", tries=3, first_wait_s=0.5, longest_wait_s=5.0)

_NOT_IMPLEMENTED = 501
_OVERLOADED_STATUSES = frozenset({429, 502, 503, 504, 520, 529})
# Statuses with which an endpoint asks for fewer requests; the others come from proxies in front of it.
ASKED_TOO_OFTEN = frozenset({429, 529})
_REPEATABLE = frozenset({408, 409, 425, 499})  # timed out, in conflict with another, too early, closed by a proxy


def policy_of(status: int) -> Policy | None:
    """Return the policy for an HTTP status; None if another try cannot help."""
    if status in _OVERLOADED_STATUSES:
        return OVERLOADED
    if status == _NOT_IMPLEMENTED:
        return None
    if status in _REPEATABLE or status >= 500:
        return BROKEN
    return None


class Trouble(gymq.GymqError):
    """One try failed in a way that another may not."""

    def __init__(
        self,
        policy: Policy,
        message: str,
        *,
        waits_for: str = "the endpoint",
        retry_after_s: float = 0.0,
        asked_too_often: bool = False,
    ) -> None:
        """
        Args:
            waits_for: the reason why the next attempt waits, in a few words.
        """
        super().__init__(message)
        self.waits_for = waits_for
        self.policy = policy
        self.retry_after_s = retry_after_s
        self.asked_too_often = asked_too_often


class Tries:
    """The tries of one request."""

    def __init__(self, leave_at: Container[Policy] = ()) -> None:
        """
        Args:
            leave_at: the classes of trouble that end it at once, because someone else can take the request.
        """
        self._leave_at = leave_at
        self._failed: Counter[Policy] = Counter()

    def wait_s(self, trouble: Trouble, time_left_s: float) -> float:
        """Return the wait before the next attempt: the time that the endpoint asked for, plus a back-off with jitter.

        Raises:
            RolloutError: the tries are used up, or the next would come after the deadline.
        """
        policy = trouble.policy
        if policy in self._leave_at:
            raise _given_up(trouble, "left to another")
        self._failed[policy] += 1
        failed = self._failed[policy]
        if failed >= policy.tries:
            raise _given_up(trouble, f"given up after {failed} tries")
        backoff_s = min(policy.longest_wait_s, policy.first_wait_s * 2.0 ** (failed - 1))
        wait_s = trouble.retry_after_s + backoff_s * random.uniform(0.5, 1.0)
        if wait_s >= time_left_s:
            raise _given_up(trouble, f"not retried: the next try in {wait_s:.3g} s would come after the deadline")
        return wait_s


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float:
    """Seconds that an endpoint wants to be left alone, from `Retry-After-Ms` or `Retry-After`; 0 if it does not say."""
    for name, unit in (("Retry-After-Ms", 1e-3), ("Retry-After", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            seconds = _until(text, now)
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return 0.0


def _until(date: str, now: datetime) -> float:
    try:
        return (parsedate_to_datetime(date) - now).total_seconds()
    except (ValueError, TypeError):  # no date, or one without a time zone
        return math.nan


def _given_up(trouble: Trouble, why: str) -> gymq.RolloutError:
    curable = trouble.policy is UNREACHABLE
    return gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, f"{trouble} ({why})", retryable=True, curable=curable)
