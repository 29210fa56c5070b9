"""One choice of a chat completion as Responses output items."""

from typing import Any

from gymq.ext.conversion.from_chat import chat_choice_to_items
from gymq.responses import ResponsesError

from ..refused import Refused


async def run(case_input: dict[str, Any]) -> dict[str, Any]:
    options = case_input["options"]
    try:
        output = chat_choice_to_items(
            case_input["choice"],
            split_reasoning=options["uses_reasoning_parser"],
            token_ids=options["return_token_id_information"],
        )
    except ResponsesError as error:
        raise Refused(str(error)) from None
    return {"output": output}
