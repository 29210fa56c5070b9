"""Agents, models and environments at work: tasks to rollouts, journals, sessions."""
