"""The chat template of a tokenizer, rendered in this process, for engines whose base model has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymq
from gymq.responses import InvalidRequest


class ChatTemplate:
    """Renders messages with the template of one tokenizer."""

    def __init__(self, tokenizer: str) -> None:
        """
        Args:
            tokenizer: a folder, or a name on the Hugging Face hub.

        Raises:
            OptionsError: it cannot be loaded, has no template, or the library is not installed.
        """
        try:
            from transformers import AutoTokenizer  # takes seconds; only those wait who need it
        except ImportError:
            raise gymq.OptionsError("tokenizer: needs transformers: pip install 'gymq[chat-template]'") from None
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        except (OSError, ValueError) as error:
            raise gymq.OptionsError(f"tokenizer: {tokenizer} cannot be loaded: {error}") from None
        if not self._tokenizer.chat_template:
            raise gymq.OptionsError(f"tokenizer: {tokenizer} has no chat template")

    def render(self, body: Mapping[str, Any]) -> str:
        """Return the prompt of a chat body.

        Raises:
            InvalidRequest: the template refuses the messages.
        """
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    body["messages"],
                    tools=body.get("tools"),
                    tokenize=False,
                    add_generation_prompt=True,
                    **body.get("chat_template_kwargs", {}),
                )
            )
        except Exception as error:  # a template is a program of the tokenizer's author
            raise InvalidRequest("messages", f"the chat template cannot say them: {error}") from None
