"""An engine like vLLM with a small language of its own, and the faults that engines have."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, as_json, error

from gymq.protocol.sampling import NEUTRAL

EOS, USER, ASSISTANT = 0, 38, 39
NUM_IDS = 40
_FIRST_CHARACTER = 0x100  # of the characters that are one id each


_READS = 3


@functools.cache
def logits(last: tuple[int, ...]) -> tuple[float, ...]:
    """The model: what it makes of the last `_READS` ids."""
    drawn = random.Random(str(last))
    return tuple(drawn.gauss(0.0, 1.5) for _ in range(USER))  # it never writes a role


def text_of(token: int) -> str:
    return "" if token == EOS else chr(_FIRST_CHARACTER + token)


def ids_of(text: str) -> list[int]:
    return [ord(one) - _FIRST_CHARACTER if ord(one) >= _FIRST_CHARACTER else ord(one) % 30 + 1 for one in text]


def prompt_of(messages: list[dict[str, Any]]) -> list[int]:
    ids: list[int] = []
    for message in messages:
        is_reply = message["role"] == "assistant"
        ids += [ASSISTANT if is_reply else USER, *ids_of(message["content"] or ""), *([EOS] if is_reply else [])]
    return [*ids, ASSISTANT]


def log_softmax(values: list[float]) -> list[float]:
    total = math.log(sum(map(math.exp, values)))
    return [value - total for value in values]


def processed(prompt: list[int], generated: list[int], body: dict[str, Any]) -> list[float]:
    """Log probs of all ids under the settings of a request."""
    given = {**NEUTRAL, **{name: body[name] for name in NEUTRAL if body.get(name) is not None}}
    values = list(logits((*prompt[-_READS:], *generated)[-_READS:]))
    for token in range(len(values)):
        if token in prompt or token in generated:
            penalty = given["repetition_penalty"]
            values[token] = values[token] / penalty if values[token] > 0 else values[token] * penalty
        values[token] -= given["presence_penalty"] * (token in generated)
        values[token] -= given["frequency_penalty"] * generated.count(token)
    values = [value / given["temperature"] for value in values]
    ranked = sorted(values, reverse=True)
    least = max(values) + math.log(given["min_p"]) if given["min_p"] else -math.inf
    if given["top_k"] > 0:
        least = max(least, ranked[int(given["top_k"]) - 1])
    kept = log_softmax([value if value >= least else -math.inf for value in values])
    mass, nucleus = 0.0, set()
    for token in sorted(range(len(kept)), key=lambda one: -kept[one]):
        if mass < given["top_p"]:
            nucleus.add(token)
        mass += math.exp(kept[token])
    return log_softmax([value if token in nucleus else -math.inf for token, value in enumerate(kept)])


@dataclass
class ScriptedEngine:
    """Answers as an engine that is right, but for its faults.

    Attributes:
        forced: settings that replace those of a request.
        faults: of `raw`, `shifted log probs`, `other ids`, `other prompt`, `text tokenised again`,
            `earlier replies left out`.
        num_shown: log probs of a prompt's tokens that it may be asked for; None: all.
    """

    forced: dict[str, Any] = field(default_factory=dict)
    faults: frozenset[str] = frozenset()
    num_shown: int | None = None
    _seeds: Iterator[int] = field(default_factory=itertools.count)

    async def reply(self, asked: Asked) -> Answer:
        if asked.target == "/tokenize":
            return as_json({"tokens": prompt_of(asked.body["messages"])})
        if "prompt_logprobs" in asked.body:
            return self._read(asked.body["prompt"], asked.body["prompt_logprobs"])
        return as_json(self._complete(asked.body))

    def _read(self, prompt: list[int], shown: int) -> Answer:
        if shown == -1 and self.num_shown is not None:
            return error("400 Bad Request", "more than max_logprobs")
        entries: list[dict[str, Any] | None] = [None]
        for place in range(1, len(prompt)):
            values = log_softmax(list(logits(tuple(prompt[max(0, place - _READS) : place]))))
            values += [-math.inf] * (NUM_IDS - len(values))
            ranked = sorted(range(NUM_IDS), key=lambda one: -values[one])
            chosen = {*(ranked if shown == -1 else ranked[:shown]), prompt[place]}
            entries.append({str(token): {"logprob": max(values[token], -9999.0)} for token in chosen})
        return as_json({"id": "c", "choices": [{"index": 0, "text": "", "prompt_logprobs": entries}]})

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        sampled_with = {**body, **self.forced}
        left_out = {"assistant"} if "earlier replies left out" in self.faults else set()
        prompt = prompt_of([message for message in body["messages"] if message["role"] not in left_out])
        generated: list[int] = []
        log_probs: list[float] = []
        drawn = random.Random(next(self._seeds))
        top: list[list[float]] = []
        while len(generated) < body.get("max_tokens", 32) and generated[-1:] != [EOS]:
            of_all = processed(prompt, generated, sampled_with)
            stated = processed(prompt, generated, {}) if "raw" in self.faults else of_all
            token = drawn.choices(range(len(of_all)), [math.exp(one) for one in of_all])[0]
            generated.append(token)
            log_probs.append(stated[token])
            top.append(stated)
        text = "".join(map(text_of, generated))
        ended = generated[-1] == EOS
        if "text tokenised again" in self.faults and len(generated) > 1:
            generated, log_probs, top = ids_of(text), log_probs[: len(text)], top[: len(text)]
        if "shifted log probs" in self.faults:
            log_probs = [*log_probs[1:], log_probs[0]]
        if "other ids" in self.faults:
            generated = [(one + 1) % USER for one in generated]
        if "other prompt" in self.faults:
            prompt = [USER, *prompt]
        content = [
            {"token": f"token_id:{one}", "logprob": log_prob, "top_logprobs": _alternatives(values)}
            for one, log_prob, values in zip(generated, log_probs, top, strict=True)
        ]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "logprobs": {"content": content},
            "token_ids": generated,
            "finish_reason": "stop" if ended else "length",
        }
        return {"id": "c", "created": 1, "model": "served", "choices": [choice], "prompt_token_ids": prompt}


def _alternatives(values: list[float]) -> list[dict[str, Any]]:
    ranked = sorted(range(len(values)), key=lambda one: -values[one])[:5]
    return [{"token": f"token_id:{one}", "logprob": max(values[one], -9999.0)} for one in ranked]
