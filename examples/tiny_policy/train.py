"""Trains a very small policy that vLLM can serve, in about a minute on one core; it needs torch and transformers.

python examples/tiny_policy/train.py FOLDER

It knows the three kinds of rows that `toy_tasks.py` makes. So that pass@k lies between 0 and 1 and reinforcement
learning has something to raise, a share of the answers in the last quarter of the training is drawn at random.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

import torch
from chat_tokenizer import make_tokenizer
from toy_tasks import KINDS, Part, dialogue
from transformers import Qwen2Config, Qwen2ForCausalLM

EXAMPLES_OF_A_KIND = 3000
TOKENIZED_OF_A_KIND = 300  # texts that the tokenizer learns from
BATCH = 64
LEARNING_RATE = 3e-3
WARM_UP_STEPS = 100
CLEAN_SHARE = 0.75  # of the steps, before answers are drawn at random
IGNORED = -100  # label of a token that is not trained

Example = tuple[list[int], list[int]]  # tokens, and which of them are trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--noise", type=float, default=0.5, help="share of answers drawn at random, 0 to 1")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    train(given.folder, noise=given.noise, steps=given.steps, seed=given.seed)


def train(folder: Path, *, noise: float, steps: int, seed: int) -> None:
    """Train a policy and save it. One machine gives the same bytes for the same seed."""
    started = time.monotonic()
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    chance = random.Random(seed)
    dialogues = {kind: [dialogue(chance, kind, 0.0) for _ in range(EXAMPLES_OF_A_KIND)] for kind in KINDS}
    tokenizer = make_tokenizer(
        ["".join(text for text, _ in one) for kind in KINDS for one in dialogues[kind][:TOKENIZED_OF_A_KIND]]
    )
    clean = {kind: [encode(tokenizer, one) for one in dialogues[kind]] for kind in KINDS}
    noisy = {
        kind: [encode(tokenizer, dialogue(chance, kind, noise)) for _ in range(EXAMPLES_OF_A_KIND)] for kind in KINDS
    }
    model = make_model(tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    model.train()
    for step in range(steps):
        done = step / steps
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, step / WARM_UP_STEPS) * (1.0 - done)
        examples = clean if done < CLEAN_SHARE else noisy
        (kind,) = chance.choices(list(KINDS), list(KINDS.values()))
        loss = loss_of(model, chance.sample(examples[kind], BATCH), tokenizer.pad_token_id)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 200 == 0:
            print(f"step {step}, loss {loss.item():.4f}, {time.monotonic() - started:.0f} s")
    model.eval()
    model.generation_config.update(eos_token_id=model.config.eos_token_id, pad_token_id=model.config.pad_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"loss {loss.item():.4f}, {sum(one.numel() for one in model.parameters())} parameters in {folder}")


def encode(tokenizer: Any, parts: list[Part]) -> Example:
    """The tokens of a dialogue, and which are trained."""
    encoded = [(tokenizer.encode(text, add_special_tokens=False), is_trained) for text, is_trained in parts]
    return [token for tokens, _ in encoded for token in tokens], [
        int(is_trained) for tokens, is_trained in encoded for _ in tokens
    ]


def make_model(tokenizer: Any) -> Qwen2ForCausalLM:
    """An untrained model of 151,000 parameters."""
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=2048,
            tie_word_embeddings=False,  # vLLM on a CPU keeps an old output layer that is tied when weights are reloaded
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )


def loss_of(model: Qwen2ForCausalLM, examples: list[Example], pad_token_id: int) -> torch.Tensor:
    """The mean cross entropy of the trained tokens."""
    longest = max(len(tokens) for tokens, _ in examples)
    ids = torch.tensor([tokens + [pad_token_id] * (longest - len(tokens)) for tokens, _ in examples])
    mask = torch.tensor([trained + [0] * (longest - len(trained)) for _, trained in examples])
    logits = model(ids[:, :-1]).logits
    labels = ids[:, 1:].masked_fill(mask[:, 1:] == 0, IGNORED)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


if __name__ == "__main__":
    main()
