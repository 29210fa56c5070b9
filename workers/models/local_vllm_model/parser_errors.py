"""A tool call that the policy wrote badly is a line of vLLM's log, not a traceback.

vLLM's parsers log each with its traceback, which in a training is most of the log.
"""

from __future__ import annotations

import logging

_PARSERS = ("tool_parser", "vllm.parser")  # in the names of their modules, which differ between versions of vLLM


def shorten_parser_errors() -> None:
    """Have the parsers that are imported log a line for each error."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("vllm.") and any(part in name for part in _PARSERS):
            logging.getLogger(name).addFilter(_one_line)


def _one_line(record: logging.LogRecord) -> bool:
    error = record.exc_info and record.exc_info[1]
    if error:
        record.msg, record.args = "%s %s: %s", (record.getMessage(), type(error).__name__, error)
        record.exc_info = record.exc_text = None
    return True
