"""NeMo Gym's interface in front of the queue: its HTTP servers, its commands and its Python package."""

from pathlib import Path

DROP_IN = Path(__file__).parent / "drop_in"
"""Folder with the package `nemo_gym`, to put at the start of an import path."""
