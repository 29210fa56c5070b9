"""Items of the OpenAI Responses API: checked, read and made."""

from gymq.responses.errors import InvalidReply, InvalidRequest, ResponsesError
from gymq.responses.items import (
    Item,
    asks_the_same,
    assistant_text,
    conclusion,
    content_text,
    content_texts,
    first_text_of_last_item,
    function_call,
    function_call_output,
    function_calls,
    is_generated,
    is_message,
    last_assistant_text,
    output_text,
    overflowed,
    split_at_first_generated,
    user_contents,
    user_message,
)
from gymq.responses.params import row_params, validate_params
from gymq.responses.reply import response_without_model, validate_response
from gymq.responses.tokens import token_fields
from gymq.responses.types import (
    FunctionCall,
    FunctionCallOutput,
    OutputItem,
    OutputMessage,
    Response,
)
from gymq.responses.usage import add_usage

__all__ = [
    "FunctionCall",
    "FunctionCallOutput",
    "InvalidReply",
    "InvalidRequest",
    "Item",
    "OutputItem",
    "OutputMessage",
    "Response",
    "ResponsesError",
    "add_usage",
    "asks_the_same",
    "assistant_text",
    "conclusion",
    "content_text",
    "content_texts",
    "first_text_of_last_item",
    "function_call",
    "function_call_output",
    "function_calls",
    "is_generated",
    "is_message",
    "last_assistant_text",
    "output_text",
    "overflowed",
    "response_without_model",
    "row_params",
    "split_at_first_generated",
    "token_fields",
    "user_contents",
    "user_message",
    "validate_params",
    "validate_response",
]
