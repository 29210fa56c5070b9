"""The log probs that an engine gives for the tokens of a prompt: the model's own ones, whatever it samples with."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from gymq.ext.policy_check.distribution import NextToken, NotComparable
from gymq.failures import RolloutError
from gymq.protocol.messages import PromptRead

WHOLE = -1  # vLLM's name for all tokens of the vocabulary

Read = Callable[[list[int] | dict[str, Any], int, int], Awaitable[PromptRead]]
"""Have the policy's engine read a prompt: the fields of `ReadPrompt` to the answer. Raises RolloutError."""


class PromptLogProbs:
    """Has an engine read prompt and reply as one prompt."""

    eos: frozenset[int] = frozenset()
    defaults: Mapping[str, Any] = {}

    def __init__(self, read: Read) -> None:
        self._read = read
        self._shown: int | None = None  # alternatives to ask for, once they are known

    async def steps(self, prompt: Sequence[int], generated: Sequence[int]) -> list[NextToken]:
        if self._shown is None:
            self._shown = await self._num_shown(prompt)
        read = await self._answer([*prompt, *generated], self._shown, len(prompt))
        np = importlib.import_module("numpy")
        steps = []
        for token, found in zip(generated, read.log_probs, strict=True):
            if str(token) not in found:
                raise NotComparable("the engine leaves tokens of a prompt out")
            ids, values = np.array(list(map(int, found))), np.array(list(found.values()))
            steps.append(NextToken(ids, values, are_logits=False, is_whole=self._shown == WHOLE))
        return steps

    async def prompt_ids(self, chat: Mapping[str, Any]) -> list[int]:
        asked = {name: chat[name] for name in ("messages", "tools") if chat.get(name)}
        return (await self._answer(asked)).token_ids

    async def _num_shown(self, prompt: Sequence[int]) -> int:
        try:
            read = await self._answer([*prompt[:2]], WHOLE, 1)
        except NotComparable:
            return 20  # unless `--max-logprobs` says otherwise
        return WHOLE if len(read.log_probs[0]) <= 4096 else 20

    async def _answer(self, prompt: list[int] | dict[str, Any], num_log_probs: int = 0, first: int = 0) -> PromptRead:
        try:
            return await self._read(prompt, num_log_probs, first)
        except RolloutError as error:
            raise NotComparable(f"{error.message}: give --reference CHECKPOINT") from None
