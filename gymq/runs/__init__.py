"""Runs: collected (`gymq.runs.collection`), and stored."""
