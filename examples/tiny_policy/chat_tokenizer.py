"""The tokenizer of the tiny policy: bytes, merges learnt from its tasks, and a chat template with tools."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 384  # at most, with the markers
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
"""Single tokens that stay in decoded text."""

TEMPLATE = Path(__file__).parent / "checkpoint" / "chat_template.jinja"


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level byte-pair encoding, so that any text can be encoded; digits are tokens of their own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY - len(MARKERS),
            special_tokens=SPECIAL,
            min_frequency=20,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in MARKERS])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    wrapped.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return wrapped
