"""Errors that a command reports to its user."""

from __future__ import annotations

from gymq.errors import GymqError


class UsageError(GymqError):
    """A command line, or a state of the cluster, with which a command cannot do what it was asked."""
