"""Items of the OpenAI Responses API: checking, reading, converting to and from Chat Completions, chaining tokens."""

from gymq.responses.chains import (
    Chain,
    Chains,
    Link,
    ModelCall,
    NoTrainableChain,
    build_chains,
    project_response,
)
from gymq.responses.chat_request import chat_messages_to_items, chat_to_params
from gymq.responses.errors import InvalidReply, InvalidRequest, ResponsesError, Unsupported
from gymq.responses.from_chat import chat_choice_to_items, chat_to_response
from gymq.responses.items import (
    Item,
    assistant_text,
    function_call_output,
    function_calls,
    is_message,
    last_assistant_text,
    output_text,
    split_at_first_generated,
    user_message,
)
from gymq.responses.params import validate_params
from gymq.responses.reply import validate_response
from gymq.responses.to_chat import responses_to_chat
from gymq.responses.tokens import token_members
from gymq.responses.usage import add_usage, usage_from_chat

__all__ = [
    "Chain",
    "Chains",
    "InvalidReply",
    "InvalidRequest",
    "Item",
    "Link",
    "ModelCall",
    "NoTrainableChain",
    "ResponsesError",
    "Unsupported",
    "add_usage",
    "assistant_text",
    "build_chains",
    "chat_choice_to_items",
    "chat_messages_to_items",
    "chat_to_params",
    "chat_to_response",
    "function_call_output",
    "function_calls",
    "is_message",
    "last_assistant_text",
    "output_text",
    "project_response",
    "responses_to_chat",
    "split_at_first_generated",
    "token_members",
    "usage_from_chat",
    "user_message",
    "validate_params",
    "validate_response",
]
