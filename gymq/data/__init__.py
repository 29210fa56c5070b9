"""Data sets in, rows through a run, files out."""
