"""Packages beside the core, each behind an entry point or an extra. The core imports none, and none another."""
