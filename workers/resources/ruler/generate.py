"""Make rows: the eleven subsets of RULER that need no data of others, with words and sentences of our own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from gymq.workers.resources.ruler import lists
from gymq.workers.resources.ruler.fitting import largest_size, made_to_fit
from gymq.workers.resources.ruler.needles import Needles

import gymq

DEFAULT_TOKENS = 4096
TEMPLATE_TOKENS = 50  # for the chat template
SHORT = lists.SHORT

Sample = tuple[str, list[str]]  # the prompt and its references


@dataclass(frozen=True)
class Task:
    """How samples of a subset are made.

    Attributes:
        make: returns a sample of a size, for a limit of tokens.
        step, short_step: sizes are multiples of one of them; the other is for limits below 4096 tokens.
        allowance: tokens for the answer.
    """

    make: Callable[[random.Random, int, int], Sample]
    step: int
    short_step: int
    allowance: int

    def step_for(self, limit: int) -> int:
        return (self.step if limit >= SHORT else self.short_step) or max(limit // 32, 1)


def needles_task(needles: Needles) -> Task:
    """Return the task of finding needles."""
    steps = (500, 500) if needles.haystack == "prose" else (25, 5)
    return Task(lambda rng, size, _limit: needles.make(rng, size), *steps, allowance=128)


TASKS = {
    "niah_single_1": needles_task(Needles("filler")),
    "niah_single_2": needles_task(Needles("prose")),
    "niah_single_3": needles_task(Needles("prose", codes_as_values=True)),
    "niah_multikey_1": needles_task(Needles("prose", keys=4)),
    "niah_multikey_2": needles_task(Needles("needles")),
    "niah_multikey_3": needles_task(Needles("needles", codes_as_keys=True, codes_as_values=True)),
    "niah_multivalue": needles_task(Needles("prose", values=4)),
    "niah_multiquery": needles_task(Needles("prose", keys=4, queried=4)),
    "vt": Task(lists.trace, 10, 5, allowance=30),
    "cwe": Task(lists.common_words, 10, 10, allowance=120),
    "fwe": Task(lists.frequent_words, 0, 0, allowance=50),
}


def make_rows(wanted: gymq.RowsWanted) -> Iterator[dict[str, Any]]:
    """Yield rows of the wanted subsets in turn."""
    tokens = wanted.tokens or DEFAULT_TOKENS
    for subset, prompt, references, length in make_samples(wanted, TASKS, tokens - TEMPLATE_TOKENS):
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
            "outputs": references,
            "length": length,
            "subset": subset,
            "agent_ref": {"type": "responses_api_agents", "name": "ruler_simple_agent"},
        }


def make_samples(
    wanted: gymq.RowsWanted, tasks: dict[str, Task], limit: int
) -> Iterator[tuple[str, str, list[str], int]]:
    """Yield the name of each sample's task, its prompt, its references, and its tokens with those of the answer."""
    sizes: dict[str, int] = {}
    for index, name in enumerate(islice(cycle(wanted.kinds), wanted.count)):
        task = tasks[name]
        step = task.step_for(limit)

        def make(size: int, seed: str = f"{wanted.seed}:{name}:{index}", task: Task = task) -> Sample:
            return task.make(random.Random(seed), size, limit)

        def length_of(sample: Sample, task: Task = task) -> int:
            return wanted.count_tokens(sample[0]) + task.allowance

        if name not in sizes:
            try:
                sizes[name] = largest_size(lambda size: length_of(make(size)), limit, step)
            except gymq.OptionsError as error:
                raise gymq.OptionsError(f"{name}: {error}") from None
        sample = made_to_fit(make, length_of, sizes[name], step, limit)
        yield name, *sample, length_of(sample)
