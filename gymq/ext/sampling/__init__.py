"""Rollouts where they are worth most: rows whose rewards differ, tasks until their pass rates are known."""

from gymq.ext.sampling.difficulties import Difficulties, rollouts_until_known

__all__ = ["Difficulties", "rollouts_until_known"]
