"""An environment and a model of conversations with many turns: 2 kB from a tool and 200 sampled tokens a turn."""

from __future__ import annotations

import functools
import random
import re
import zlib
from array import array
from pathlib import Path
from typing import Any

import gymq
from benchmarks.workloads import response_of

TOOL_CHARS = 2000
SAMPLED = 200
BETWEEN = 500  # tokens of the prompt since the last sampled one

READ = {
    "type": "function",
    "name": "read",
    "description": "Read the next page.",
    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    "strict": True,
}


_NUM = 256  # pages and replies that differ, so that compression finds in them what it would find in real ones
_random = random.Random(1)
_WORDS = ["".join(_random.choices("abcdefghijklmnopqrstuvwxyz", k=_random.randint(2, 9))) for _ in range(5000)]
PAGES = [" ".join(_random.choices(_WORDS, k=500))[:TOOL_CHARS] for _ in range(_NUM)]
PROMPTS = [array("i", _random.choices(range(150_000), k=BETWEEN)) for _ in range(_NUM)]
GENERATIONS = [array("i", _random.choices(range(150_000), k=SAMPLED)) for _ in range(_NUM)]
LOG_PROBS = [array("f", [-_random.expovariate(2.0) for _ in range(SAMPLED)]) for _ in range(_NUM)]


_all = array("i")  # the tokens of a conversation, as far as they were needed


def prompt_of(turn: int) -> array[int]:
    """The tokens before a turn, counted from 0, in one piece."""
    while len(_all) <= turn * (BETWEEN + SAMPLED):
        number = len(_all) // (BETWEEN + SAMPLED) % _NUM
        _all.extend(PROMPTS[number] + GENERATIONS[number])
    return _all[: turn * (BETWEEN + SAMPLED) + BETWEEN]


def rewritten_prompt_of(turn: int) -> array[int]:
    """The tokens before a turn where the template keeps the second half of each earlier reply."""
    ids = array("i")
    for number in range(turn):
        ids.extend(PROMPTS[number % _NUM] + GENERATIONS[number % _NUM][SAMPLED // 2 :])
    return ids + PROMPTS[turn % _NUM]


@functools.cache
def long_prompt(num_tokens: int) -> tuple[str, array[int]]:
    """Return a prompt of real text, the documents of gymq, and its tokens: equal words have equal ones."""
    documents = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
    words = re.findall(r" ?\w{1,6}|\W", "".join(document.read_text() for document in documents))[:num_tokens]
    return "".join(words), array("i", [zlib.crc32(word.encode()) % 150_000 for word in words])


class Pages:
    read = 0


class Book(gymq.Resources[gymq.Row, Pages]):
    max_concurrency = 100_000

    async def open(self, row: gymq.Row) -> Pages:
        return Pages()

    @gymq.tool
    async def read(self, state: Pages) -> str:
        """Read the next page."""
        state.read += 1
        return PAGES[state.read % _NUM]

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, Pages]) -> gymq.Verdict:
        return gymq.Verdict(float(request.state.read > 0))


class Reader(gymq.Model):
    """Calls the tool until the last turn. With `token_ids` it says all of its prompt, as engines do, from no memory."""

    max_concurrency = 100_000

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        asked = request.params["metadata"]
        turn = (len(request.params["input"]) - 1) // 2
        is_last = turn + 1 >= int(asked["turns"])
        item: dict[str, Any] = {"id": f"i{turn}", "status": "completed"}
        if is_last:
            item |= {"type": "message", "role": "assistant"}
            item["content"] = [{"type": "output_text", "text": "Done.", "annotations": []}]
        else:
            item |= {"type": "function_call", "call_id": f"i{turn}", "name": "read", "arguments": "{}"}
        if asked["token_ids"] == "yes":
            prompt = rewritten_prompt_of(turn) if asked["rewriting"] == "yes" else prompt_of(turn)
            item["prompt_token_ids"] = long_prompt(int(asked["prompt_tokens"]))[1] + prompt
            item["generation_token_ids"] = GENERATIONS[turn % _NUM]
            item["generation_log_probs"] = LOG_PROBS[turn % _NUM]
        return response_of(item, BETWEEN, SAMPLED)
