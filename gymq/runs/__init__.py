"""Runs: collected (`gymq.runs.collection`), listed, watched, scored again, exported."""
