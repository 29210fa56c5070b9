"""Tasksets that verifiers ships in a cluster: solutions win, mistakes do not, and killed workers change nothing.

They are those of the games of TextArena that need a list of words. The list is this test's own: nothing is downloaded.
"""

import importlib.util
import json
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymq.protocol.instances import Instance
from tests.support import episodes
from tests.support.compatibility import record

SLOW_S = 400.0  # verifiers and TextArena import much
# From the first to the last each differs from the one before in a letter.
WORDS = ["cold", "cord", "word", "wore", "more", "mare", "mark"]


def has_library() -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("verifiers.v1", "textarena"))
    except ModuleNotFoundError:
        return False


pytestmark = [
    pytest.mark.skipif(not has_library(), reason="needs verifiers 0.4 and textarena: make test-in NAME=hubs"),
    pytest.mark.timeout(1200),
]


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of lists of words; one for all games, as NLTK keeps the first that it reads."""
    lists = tmp_path_factory.mktemp("nltk_data")
    folder = lists / "corpora" / "words"
    folder.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (folder / name).write_text("\n".join(WORDS) + "\n")
    return lists


@pytest.fixture(autouse=True)
def words(lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of words for NLTK, which cannot download another."""
    import nltk

    monkeypatch.setenv("NLTK_DATA", str(lists))
    monkeypatch.setattr(nltk.data, "path", [str(lists)])
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def begun(game: str, seed: int) -> Any:
    """The game of a task, as the taskset begins it."""
    import textarena

    random.seed(seed)
    made = textarena.make(env_id=game)
    made.reset(num_players=1)
    while hasattr(made, "env"):
        made = made.env
    return made


def letters(game: Any) -> list[str]:
    return [f"[{letter}]" for letter in dict.fromkeys(game.state.game_state["target_word"])]


def ladder(game: Any) -> list[str]:
    """The shortest way from one word to the other."""
    paths = deque([[game.start_word]])
    while paths[0][-1] != game.target_word:
        path = paths.popleft()
        following = [word for word in WORDS if sum(a != b for a, b in zip(word, path[-1], strict=True)) == 1]
        paths.extend([*path, word] for word in following if word not in path)
    return [f"[{word}]" for word in paths[0][1:]]


def places(game: Any) -> list[str]:
    ends = []
    for word, (row, column, direction) in game.placed_words.items():
        down, across = (0, len(word) - 1) if direction == "across" else (len(word) - 1, 0)
        ends.append(f"[{row} {column} {row + down} {column + across}]")
    return ends


SOLVED: dict[str, Callable[[Any], list[str]]] = {
    "Hangman-v0": letters,
    "WordLadder-v0": ladder,
    "WordSearch-v0": places,
}


@pytest.mark.parametrize("game", SOLVED)
async def test_a_game_of_a_taskset(game: str, tmp_path: Path) -> None:
    rows = [episodes.row(SOLVED[game](begun(game, task)), ["I pass."] * 3, task=task) for task in range(4)]
    options = {"environment": "textarena", "arguments": {"game": game}, "num_workers": 2}
    environment = Instance("games", "resources", "verifiers", options)
    solved = await episodes.played(
        tmp_path / "s", environment, rows, skill=1.0, kill=True, agent="answering_agent", deadline_s=SLOW_S
    )
    failed = await episodes.played(
        tmp_path / "m", environment, rows, skill=0.0, agent="answering_agent", deadline_s=SLOW_S
    )
    assert [(outcome.reward, outcome.attempt) for outcome in solved] == [(1.0, 0)] * 4  # none started over
    assert max(outcome.reward for outcome in failed) < 1.0
    prompt = json.dumps(failed[0].verdict["responses_create_params"])
    assert "competitive game player" in prompt  # the taskset's own
    if game == list(SOLVED)[-1]:
        what = "3 games of its taskset `textarena` in a cluster: solutions 1, mistakes less, workers killed"
        record("verifiers: tasksets", "0.4.0", "its package, TextArena 0.7.4, simulated_model", what)
