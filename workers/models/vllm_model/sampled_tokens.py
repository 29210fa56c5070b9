"""What an engine says about the tokens it was given and sampled. Nothing here does I/O.

Engines have three ways of saying it:

* the three token members on the message;
* ids in one of several places, beside the list of log probs or with log probs of their own (`token_places`);
* that list alone, whose entries are named `token_id:<n>`; the prompt's ids then come from `/tokenize`.

A reply may use several, which must agree: training on ids that are not those that were sampled goes wrong unseen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec
from gymq.workers.models.vllm_model import token_places
from gymq.workers.models.vllm_model.completion_body import LogProbs

from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.packing import pack_fields
from gymq.responses import InvalidReply, InvalidRequest, token_fields
from gymq.responses.errors import warn_once

_ID_PREFIX = "token_id:"
_LIST = "choices[0].logprobs.content"
_LOG_PROB_TOLERANCE = 1e-6  # between two texts of the same float32

_decode_ids = msgspec.json.Decoder(list[int]).decode


@dataclass
class SampledTokens:
    """The tokens of one reply. `prompt_token_ids` is None if the reply does not say."""

    prompt_token_ids: list[int] | None
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: Any = field(default=None)

    def check_prompt(self, sent: list[int], *, is_named: bool) -> None:
        """Take the prompt that was sent as the prompt of the reply.

        Args:
            is_named: the reply has to name it: an engine may know no prompts in tokens, and make one of the messages.

        Raises:
            InvalidReply: the engine was given another prompt, or does not say.
        """
        if self.prompt_token_ids is None and is_named:
            raise InvalidReply("prompt_token_ids", "missing, so the engine may have made a prompt of its own")
        if self.prompt_token_ids not in (None, sent):
            raise InvalidReply("prompt_token_ids", "differ from the tokens that were sent: see the option `engine`")
        self.prompt_token_ids = sent

    def put_on(self, completion: dict[str, Any]) -> None:
        """Put the tokens on the first message, and remove the forms in which the engine gave them, in place.

        Raises:
            InvalidReply: one is no 32-bit integer, or not finite.
        """
        message = completion["choices"][0]["message"]
        message["prompt_token_ids"] = self.prompt_token_ids
        message["generation_token_ids"] = self.generation_token_ids
        message["generation_log_probs"] = self.generation_log_probs
        try:
            pack_fields(message, "")  # at once: no check after this looks at each of thousands of numbers again
        except ValueError as error:
            raise InvalidReply("choices[0].message", str(error).lstrip(".")) from None
        if self.routed_experts is not None:
            message["routed_experts"] = self.routed_experts
        token_places.clear(completion)


def read_tokens(completion: dict[str, Any]) -> SampledTokens:
    """Return the tokens of a checked chat completion.

    Raises:
        InvalidReply: there are none, a part is missing, or two sources do not agree.
    """
    choice = completion["choices"][0]
    message = choice["message"]
    bundle = _bundle(message)
    prompts, sampled = token_places.prompt_ids(completion), token_places.sampled_ids(completion)
    log_probs = token_places.log_probs(completion)
    # An engine's own log probs are one for each token; parsers of Dynamo's server may take entries out of the list.
    if not log_probs or bundle is not None:
        listed, named = _log_prob_list(choice)
        log_probs |= {_LIST: listed} if listed is not None else {}
        sampled |= {_LIST: named} if named is not None else {}
    if not log_probs and bundle is None:
        raise InvalidReply(_LIST, "missing, so there are no log probs of the sampled tokens")

    routed = choice.get("routed_experts") if message.get("routed_experts") is None else message["routed_experts"]
    if bundle is not None:
        source, found = "the token fields of the message", SampledTokens(*bundle, routed)
    elif sampled:
        source, ids = next(iter(sampled.items()))
        found = SampledTokens(next(iter(prompts.values()), None), ids, next(iter(log_probs.values())), routed)
    else:
        raise InvalidReply(_LIST, f"the tokens are not named {_ID_PREFIX}<n>, and there are no token ids elsewhere")

    if len(found.generation_token_ids) != len(found.generation_log_probs):
        numbers = f"{len(found.generation_log_probs)} log probs for {len(found.generation_token_ids)} sampled tokens"
        raise InvalidReply("choices[0]", f"{source}: {numbers}")
    for others, known in ((prompts, found.prompt_token_ids), (sampled, found.generation_token_ids)):
        for where, other in others.items():
            if other != known:
                raise InvalidReply(where, f"the ids differ from {source}")
    for where, values in log_probs.items():
        if values is not found.generation_log_probs and not _agree(values, found.generation_log_probs):
            raise InvalidReply(where, f"the log probs differ from {source}")
    return found


def read_tokenized(answer: dict[str, Any]) -> list[int]:
    """Return the ids in a reply of `/tokenize`.

    Raises:
        InvalidReply: there are none.
    """
    try:
        return msgspec.convert(answer.get("tokens"), list[int], strict=False)
    except msgspec.ValidationError:
        raise InvalidReply("tokens", "expected a list of token ids in the reply of /tokenize") from None


def warn_of_other_prompt(completion: dict[str, Any], num_tokens: int) -> None:
    """Warn once where the engine counted other tokens than `/tokenize` makes of a prompt, of which it may know less.

    No failure, because gateways count tokens in ways of their own.
    """
    usage = completion.get("usage")
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if isinstance(counted, int) and counted != num_tokens:
        warn_once(
            "/tokenize gives other prompt tokens than the engine counts, so their ids may be wrong; with "
            "request_prompt_and_generation_token_ids the engine names them itself"
        )


def _bundle(message: dict[str, Any]) -> tuple[list[int], list[int], list[float]] | None:
    try:
        fields = token_fields(message)
    except InvalidRequest as fault:
        raise InvalidReply(f"choices[0].message.{fault.path}", fault.reason) from None
    if fields is None:
        return None
    return fields["prompt_token_ids"], fields["generation_token_ids"], fields["generation_log_probs"]


def _log_prob_list(choice: dict[str, Any]) -> tuple[list[float] | None, list[int] | None]:
    """Return the log probs of a choice, and the ids that its tokens are named by; None for what it does not have."""
    holder = choice.get("logprobs")
    if isinstance(holder, LogProbs):
        if holder.content is None:
            return None, None
        log_probs, names = [entry.logprob for entry in holder.content], [entry.token for entry in holder.content]
        return log_probs, _named_ids(names)
    entries = holder.get("content") if isinstance(holder, dict) else holder
    if entries is None:
        return None, None
    try:
        log_probs = [float(entry["logprob"]) for entry in entries]
        names = [entry["token"] for entry in entries]
    except (LookupError, TypeError, ValueError):
        raise InvalidReply(_LIST, "expected a list of objects with `token` and `logprob`") from None
    return log_probs, _named_ids(names)


def _named_ids(names: list[Any]) -> list[int] | None:
    """Return the ids that tokens are named by; None if they have other names."""
    try:
        text = ",".join(names)
    except TypeError:
        text = ""
    # All at once: to look at one name after another takes longer than to decode the reply.
    num_with_prefix = text.startswith(_ID_PREFIX) + text.count(f",{_ID_PREFIX}")
    if num_with_prefix == len(names) == text.count(_ID_PREFIX) and text.count(",") == max(0, len(names) - 1):
        try:
            return _decode_ids(f"[{text.replace(_ID_PREFIX, '')}]")
        except UNDECODABLE:
            raise InvalidReply(_LIST, "expected a list of token ids") from None
    if _ID_PREFIX in text:
        raise InvalidReply(_LIST, f"some tokens are named {_ID_PREFIX}<n> and some are not")
    return None


def _agree(left: list[float], right: list[float]) -> bool:
    return len(left) == len(right) and all(
        math.isclose(one, other, rel_tol=_LOG_PROB_TOLERANCE, abs_tol=_LOG_PROB_TOLERANCE)
        for one, other in zip(left, right, strict=True)
    )
