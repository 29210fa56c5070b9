"""Audit an environment: right replies earn their reward, no others do, and none blocks it."""
