"""The log probs that vLLM gives for the tokens of a prompt: the model's own ones, whatever it samples with."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from gymq.ext.policy_check.distribution import NextToken
from gymq.ext.policy_check.source import SourceError

WHOLE = -1  # vLLM's name for all tokens of the vocabulary
LARGEST_VOCABULARY = 4096  # of which all log probs are asked for, with each token
NUM_SHOWN = 20  # that vLLM shows unless `--max-logprobs` says otherwise
_TIMEOUT_S = 30.0
_LONGEST_ERROR = 200


class PromptLogProbs:
    """Has an engine read prompt and reply as one prompt."""

    eos: frozenset[int] = frozenset()
    defaults: Mapping[str, Any] = {}

    def __init__(self, base_url: str, model: str, key: str | None = None) -> None:
        """Prepare the requests.

        Args:
            base_url: of the engine, with the final /v1.
            model: name of the model there.
            key: sent as a bearer token.
        """
        self._base = base_url.rstrip("/")
        self._model = model
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._shown: int | None = None  # alternatives to ask for, once they are known

    async def steps(self, prompt: Sequence[int], generated: Sequence[int]) -> list[NextToken]:
        if self._shown is None:
            self._shown = await self._num_shown(prompt)
        log_probs = await self._read([*prompt, *generated], self._shown)
        np = importlib.import_module("numpy")
        steps = []
        for token, found in zip(generated, log_probs[len(prompt) :], strict=True):
            if token not in found:
                raise SourceError("the engine leaves tokens of a prompt out")
            ids, values = np.array(list(found)), np.array(list(found.values()))
            steps.append(NextToken(ids, values, are_logits=False, is_whole=self._shown == WHOLE))
        return steps

    async def prompt_ids(self, chat: Mapping[str, Any]) -> list[int]:
        asked = {"model": self._model, "messages": chat["messages"], "add_generation_prompt": True}
        if chat.get("tools"):
            asked["tools"] = chat["tools"]
        answer = await self._post(self._base.removesuffix("/v1") + "/tokenize", asked)
        try:
            return [int(one) for one in answer["tokens"]]
        except (LookupError, TypeError, ValueError):
            raise SourceError("/tokenize of the engine returns no tokens") from None

    async def _num_shown(self, prompt: Sequence[int]) -> int:
        try:
            *_, last = await self._read(prompt[:2], WHOLE)
        except SourceError:
            return NUM_SHOWN
        return WHOLE if len(last) <= LARGEST_VOCABULARY else NUM_SHOWN

    async def _read(self, token_ids: Sequence[int], shown: int) -> list[dict[int, float]]:
        """Return the log probs at each token, by id; none at the first one."""
        body = {"model": self._model, "prompt": list(token_ids), "max_tokens": 1, "prompt_logprobs": shown}
        answer = await self._post(f"{self._base}/completions", body)
        try:
            entries = answer["choices"][0]["prompt_logprobs"]
            return [
                {int(token): float(entry["logprob"]) for token, entry in (found or {}).items()} for found in entries
            ]
        except (LookupError, TypeError, ValueError, AttributeError):
            raise SourceError("the engine gives no log probs of prompts: give --reference CHECKPOINT") from None

    async def _post(self, url: str, body: Mapping[str, Any]) -> Any:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(headers=self._headers, timeout=timeout) as session,
                session.post(url, json=body) as answer,
            ):
                if answer.status != 200:
                    text = (await answer.text())[:_LONGEST_ERROR]
                    raise SourceError(f"the engine answers {answer.status}: {text}")
                return await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise SourceError(f"the engine does not answer: {error or type(error).__name__}") from None
