"""Recognise that a conversation no longer fits into a model's context, by the answer of its engine."""

from __future__ import annotations

import re

import gymq

_STATUSES = frozenset({200, 400, 413, 422, 500})  # some engines call it a fault of their own
_CODES = frozenset(
    {
        "1261",  # Zhipu
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",  # llama.cpp
        "model_context_window_exceeded",
        "tokens_limit_reached",  # GitHub Models
    }
)
_PHRASES = re.compile(
    "|".join(
        (
            r"context[ _-]?(length|window|size|limit)",
            r"maximum context",
            r"context shift is disabled",
            r"\bmax[_ ](model|seq|input|context|sequence)[_ ]?len",
            r"maximum (model|sequence|input|prompt|token) length",
            r"(prompt|input|conversation|history)( \(.*?\))? (is|are|was) too (long|large)",
            r"(prompt|input) exceeds (the )?(max|limit)",
            r"exceed(s|ed)? (the )?(max(imum)?|model('s)?|allowed) (number of )?(input |prompt )?(tokens?|length)\b",
            r"exceed(s|ed)? model token limit",
            r"max_tokens must be at least 1\b",  # what is left for the reply
            r"max_new_tokens` must be <=",  # with the number of tokens of the prompt before it
            r"`inputs` must have less than",
            r"should not exceed max_(num_tokens|seq_len|input_len)",
            r"range of input length should be",
            r"\bsession_len\b",
            r"prompt token count .* exceeds the limit",
            r"larger than the model capacity",
            r"too many tokens: ",
            r"reduce the length of (the|your) (messages|prompt|input)",
            r"prompt 超长|超出.{0,8}(上下文|最大长度)",
        )
    ),
    re.IGNORECASE,
)
_MOST_READ = 4096  # characters of an error, which an engine may make as long as it likes
_ASKED_TOO_MUCH = re.compile(r"max_tokens=\d+ cannot be greater than max_model_len")  # whatever the prompt
_FEWEST_DIGITS, _MOST_DIGITS = 3, 12  # of a length in tokens
_NUMBER = re.compile(r"\d[\d,]*")
_RATE_LIMIT = re.compile(r"rate.?limit|tokens per (minute|day)", re.IGNORECASE)


class ContextOverflow(gymq.GymqError):
    """The conversation no longer fits into the model's context."""


def is_context_overflow(status: int, code: str, said: str) -> bool:
    """Return whether an engine's answer reports that prompt and reply do not fit into the model's context.

    Args:
        status: of the answer; 200 for an error in a reply.
        code: the error's code or type, empty without.
        said: the error's text.
    """
    # A field that does not fit is reported with its place, after which vLLM may repeat the whole request.
    said = said.partition("'loc':")[0][:_MOST_READ]
    if status not in _STATUSES or _ASKED_TOO_MUCH.search(said) or _RATE_LIMIT.search(f"{code} {said}"):
        return False
    return code in _CODES or _PHRASES.search(said) is not None


def numbers_of_tokens(said: str) -> list[int]:
    """Return the numbers in a refusal that may be lengths of a prompt or of a model's context, the largest first."""
    found = [number.replace(",", "") for number in _NUMBER.findall(said[:_MOST_READ])]
    return sorted((int(number) for number in found if _FEWEST_DIGITS <= len(number) <= _MOST_DIGITS), reverse=True)


def exceeds(said: str, length: int, asked: int) -> bool:
    """Return whether the numbers in a refusal say that prompt and reply are longer than a model's context.

    Args:
        said: the refusal's text.
        length: of the model's context, in tokens.
        asked: the longest reply that the request allows; 0 if it sets no limit.
    """
    given = numbers_of_tokens(said)
    if length not in given or asked >= length or _RATE_LIMIT.search(said):
        return False
    largest = [number for number in given if number != length][:2]
    return sum(largest) > length or largest[:1] > [length - asked]
