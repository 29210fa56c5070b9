"""The win rate of a run against its baseline, from the verdicts in its results, with an interval.

`python -m gymq.workers.resources.arena_judge.score RESULTS.jsonl` prints it over all tasks and for each category.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gymq.workers.resources.arena_judge.verdicts import VERDICTS, is_loss, is_win

ROUNDS = 100
SEED = 42
MUCH_BETTER = 3  # how many battles such a verdict counts for
ELO_SCALE = 400.0
ENDS = 40  # the interval ends where the first and the last of so many parts of the resamples do

_MT_WORDS = 624  # of the state of the generator MT19937


@dataclass(frozen=True)
class ArenaScore:
    """The share of battles that were won, in percent; a tie is half a battle won.

    Attributes:
        ci_lower: the lower end of the 95 % interval, as a difference from the score.
        ci_upper: the upper end, likewise.
        invalid_scores: games without a verdict.
        n: tasks.
    """

    score: float
    ci_lower: float
    ci_upper: float
    invalid_scores: int
    n: int


Games = tuple[str | None, str | None]
"""The verdicts of a task: with the candidate as A, and with the candidate as B."""


def arena_score(tasks: Sequence[Games], rounds: int = ROUNDS, seed: int = SEED) -> ArenaScore:
    """Compute the score of a candidate, and an interval from resamples of the battles.

    With two players the ratings of Elo's model say the same as the share of battles won. The interval is that of the
    ratings, turned back into shares; resamples without any loss or any win have none and are left out.
    """
    battles = [outcome for games in tasks for outcome in _battles(games)]
    invalid = sum(verdict is None for games in tasks for verdict in games)
    if not battles:
        return ArenaScore(math.nan, math.nan, math.nan, invalid, len(tasks))
    share = sum(battles) / len(battles)
    lower = upper = share
    if 0 < share < 1:
        ratings = list(_ratings(battles, rounds, seed))
        ends = statistics.quantiles(ratings, n=ENDS, method="inclusive") if len(ratings) > 1 else ratings or [math.nan]
        lower, upper = _share(ends[0]), _share(ends[-1])
    lower, upper = (round(100 * (end - share), 2) for end in (lower, upper))
    return ArenaScore(round(100 * share, 2), lower, upper, invalid, len(tasks))


def best_games(rollouts: Iterable[Mapping[str, Any]]) -> Games:
    """Return for each order the verdict that is best for the candidate, of a task's rollouts."""
    rollouts = list(rollouts)
    first = [rollout["verdict_gen_base"] for rollout in rollouts if rollout["verdict_gen_base"] is not None]
    second = [rollout["verdict_base_gen"] for rollout in rollouts if rollout["verdict_base_gen"] is not None]
    return min(first, key=VERDICTS.index, default=None), max(second, key=VERDICTS.index, default=None)


def arena_scores(results: Iterable[Mapping[str, Any]], rounds: int = ROUNDS, seed: int = SEED) -> dict[str, ArenaScore]:
    """Return the score over all tasks, under an empty name, and for each category.

    Args:
        results: lines of a run's output. A task is in the category of the first line that it has.
    """
    tasks: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for result in results:
        tasks[result["_ng_task_index"]].append(result)
    groups: dict[str, list[Games]] = defaultdict(list)
    for _, rollouts in sorted(tasks.items()):
        games = best_games(rollouts)
        groups[""].append(games)
        groups[rollouts[0]["category"]].append(games)
    return {name: arena_score(games, rounds, seed) for name, games in sorted(groups.items())}


def main() -> None:
    """Print the scores of a run, one figure on each line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="output of a run, JSON Lines")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="resamples")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the resamples")
    given = parser.parse_args()
    with given.results.open(encoding="utf-8") as file:
        scores = arena_scores(map(json.loads, file), given.rounds, given.seed)
    for category, score in scores.items():
        prefix = f"arena_elo/{category}" if category else "arena_elo"
        for name, value in asdict(score).items():
            print(f"{prefix}/{name}: {value:g}")


def _battles(games: Games) -> Iterator[float]:
    """Yield 1 for each battle that the candidate wins, 0 for one that it loses and a half for a tie."""
    for verdict, won in zip(games, (1.0, 0.0), strict=True):
        if verdict is not None:
            outcome = won if is_win(verdict) else 1.0 - won if is_loss(verdict) else 0.5
            yield from [outcome] * (MUCH_BETTER if ">>" in verdict else 1)


def _ratings(battles: Sequence[float], rounds: int, seed: int) -> Iterator[float]:
    """Yield the candidate's rating above the baseline in each resample that has one."""
    generator = _generator(seed)
    for _ in range(rounds):
        share = sum(battles[index] for index in _indices(generator, len(battles))) / len(battles)
        if 0 < share < 1:
            yield ELO_SCALE * math.log10(share / (1 - share))


def _share(rating: float) -> float:
    return 1 / (1 + 10 ** (-rating / ELO_SCALE))


def _generator(seed: int) -> random.Random:
    """Return a generator that begins like NumPy's legacy one with this seed, so that intervals agree with others'."""
    state = [seed & 0xFFFFFFFF]
    for index in range(1, _MT_WORDS):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + index) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, (*state, _MT_WORDS), None))
    return generator


def _indices(generator: random.Random, count: int) -> Iterator[int]:
    """Yield as many indices below a count, drawn with replacement as NumPy's legacy generator does."""
    mask = (1 << (count - 1).bit_length()) - 1
    for _ in range(count):
        index = generator.getrandbits(32) & mask if mask else 0
        while index >= count:
            index = generator.getrandbits(32) & mask
        yield index


if __name__ == "__main__":
    main()
