"""Credentials: how a process gets its own, which variables it passes on, and what is hidden in texts."""
