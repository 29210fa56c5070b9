"""Responses create parameters as a Chat Completions request."""

from typing import Any

from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.responses import ResponsesError, validate_params

from ..refused import Refused


async def run(case_input: dict[str, Any]) -> dict[str, Any]:
    token_ids = case_input["options"]["return_token_id_information"]
    try:
        return {"chat_request": responses_to_chat(validate_params(case_input["request"]), token_ids=token_ids)}
    except ResponsesError as error:
        raise Refused(str(error)) from None
