"""Stored runs: listed, watched, scored again, exported."""
