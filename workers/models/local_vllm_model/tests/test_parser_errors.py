from __future__ import annotations

import json
import logging

import pytest
from gymq.workers.models.local_vllm_model.parser_errors import shorten_parser_errors

NAMES = ("vllm.tool_parsers.hermes_tool_parser", "vllm.entrypoints.openai.tool_parsers.hermes_tool_parser")


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_call_that_cannot_be_parsed_is_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    parser, other = logging.getLogger(name), logging.getLogger("vllm.v1.engine")
    shorten_parser_errors()
    for logger in (parser, other):
        try:
            json.loads('{"name": add}')
        except ValueError:
            logger.exception("Error in extracting tool call from response.")
    short, whole = caplog.records
    reason = "JSONDecodeError: Expecting value: line 1 column 10 (char 9)"
    assert short.getMessage() == f"Error in extracting tool call from response. {reason}"
    assert (short.exc_info, short.exc_text, short.levelname) == (None, None, "ERROR")
    assert whole.exc_info
