"""Calls that may take minutes: the calling side, the serving side, and which replica answers."""
