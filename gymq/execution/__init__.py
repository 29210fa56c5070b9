"""Agents, models and environments at work: loaded by name, tasks to rollouts, journals, sessions.

What asks the server raises `BusError` as in `gymq.bus`.
"""
