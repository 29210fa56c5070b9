"""Rollouts that other programs stored, as lines of a result file: ATIF, Inspect's logs, results of verifiers."""

from gymq.runs.foreign.lines import ForeignError as ForeignError
from gymq.runs.foreign.lines import rollout_lines as rollout_lines
