"""Agents, models and environments at work: loaded by name, tasks to rollouts, journals, sessions."""
