"""A checkpoint in transformers, with which everything can be computed exactly."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gymq.ext.policy_check.distribution import NextToken, NotComparable


class PolicyReference:
    """Computes distributions with a checkpoint, in float32."""

    def __init__(self, checkpoint: Path) -> None:
        """Load a checkpoint.

        Raises:
            NotComparable: it cannot be loaded, or transformers and torch are not installed.
        """
        try:
            self._torch: Any = importlib.import_module("torch")
            transformers: Any = importlib.import_module("transformers")
        except ImportError as error:
            raise NotComparable(f"--reference needs transformers and torch: {error}") from None
        transformers.utils.logging.disable_progress_bar()
        try:
            path = str(checkpoint)
            model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=self._torch.float32)
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        except (OSError, ValueError, KeyError) as error:
            raise NotComparable(f"--reference {checkpoint}: cannot be loaded: {error}") from None
        self._model = model.eval()
        self._one = asyncio.Lock()
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        self.eos: frozenset[int] = frozenset(one for one in (*ends, self._tokenizer.eos_token_id) if one is not None)
        self.defaults: Mapping[str, Any] = _generation_config(checkpoint)

    async def steps(self, prompt: Sequence[int], generated: Sequence[int]) -> list[NextToken]:
        async with self._one:  # each pass uses all cores
            return await asyncio.to_thread(self._steps, [*prompt, *generated], len(prompt))

    async def prompt_ids(self, chat: Mapping[str, Any]) -> list[int]:
        tools = chat.get("tools") or None
        try:
            ids = self._tokenizer.apply_chat_template(
                chat["messages"], tools=tools, add_generation_prompt=True, return_dict=False
            )
        except Exception as error:  # a template is a program of the checkpoint's author
            raise NotComparable(f"the checkpoint's chat template fails: {error}") from None
        return [int(one) for one in ids]

    def _steps(self, token_ids: list[int], num_before: int) -> list[NextToken]:
        size = self._model.config.get_text_config().vocab_size
        if not all(0 <= one < size for one in token_ids):
            raise NotComparable(f"ids beyond the {size:,} of the checkpoint's vocabulary")
        with self._torch.inference_mode():
            logits = self._model(self._torch.tensor([token_ids])).logits[0, num_before - 1 : -1].numpy()
        ids = self._torch.arange(logits.shape[-1]).numpy()
        return [NextToken(ids, row, are_logits=True, is_whole=True) for row in logits]


def _generation_config(checkpoint: Path) -> dict[str, Any]:
    try:
        config = json.loads((checkpoint / "generation_config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
