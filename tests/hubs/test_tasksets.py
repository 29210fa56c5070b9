"""Tasksets of verifiers 0.4 in a cluster: solutions win, mistakes do not, and killed workers change nothing."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.resources.verifiers import worker as verifiers_worker

from gymq.protocol.instances import Instance
from tests.support import episodes

pytestmark = pytest.mark.timeout(1200)

SLOW_S = 500.0  # verifiers imports much

EXAMPLES = Path(verifiers_worker.__file__).parent / "data" / "example.jsonl"
WORDS = ["crane", "slate", "plant", "brick", "house", "mouth", "fight", "lemon"]


def instance(environment: str, **options: Any) -> Instance:
    return Instance("tasks", "resources", "verifiers", {"environment": environment, "num_workers": 2, **options})


def write_words(folder: Path) -> None:
    """A list of words and a tagger that knows them; NLTK's own are not on a package index."""
    words, tagger = folder / "corpora" / "words", folder / "taggers" / "averaged_perceptron_tagger_eng"
    words.mkdir(parents=True)
    tagger.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (words / name).write_text("".join(f"{word}\n" for word in WORDS))
    parts = {"weights": {}, "tagdict": dict.fromkeys(WORDS, "NN"), "classes": ["NN"]}
    for part, content in parts.items():
        (tagger / f"{tagger.name}.{part}.json").write_text(json.dumps(content))


def secret(seed: int) -> str:
    """What Wordle draws with a seed."""
    import textarena  # takes seconds

    random.seed(seed)
    game = textarena.make("Wordle-v0")
    game.reset(num_players=1)
    return str(game.state.game_state["secret_word"])


async def test_a_game_of_textarena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_words(tmp_path / "nltk")
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "nltk"))
    rows = []
    for seed in range(2):
        drawn = secret(seed)
        others = [f"[{word}]" for word in WORDS if word != drawn]
        rows.append(episodes.row([*others[:4], f"[{drawn}]"], others[:6], task=seed))
    environment = instance("textarena", arguments={"game": "Wordle-v0"}, pass_env=["NLTK_DATA"])
    played = await episodes.played(
        tmp_path / "s", environment, rows, skill=1.0, kill=True, agent="answering_agent", deadline_s=SLOW_S
    )
    lost = await episodes.played(
        tmp_path / "m", environment, rows, skill=0.0, agent="answering_agent", deadline_s=SLOW_S
    )
    assert [(outcome.reward, outcome.attempt) for outcome in played] == [(1.0, 0)] * 2  # none started over
    assert max(outcome.reward for outcome in lost) < 1.0


async def test_a_taskset_with_tools(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    environment = instance("gymq.workers.resources.verifiers.example_taskset")
    solved = await episodes.played(
        tmp_path / "s", environment, rows, skill=1.0, agent="answering_agent", deadline_s=SLOW_S
    )
    failed = await episodes.played(
        tmp_path / "m", environment, rows, skill=0.0, agent="answering_agent", deadline_s=SLOW_S
    )
    assert {outcome.reward for outcome in solved} == {1.0}
    assert {outcome.reward for outcome in failed} == {0.0}
    assert {outcome.verdict["metrics"]["num_tool_calls"] for outcome in solved} == {1.0}
