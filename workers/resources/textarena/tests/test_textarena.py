"""Real games of TextArena: solutions win, mistakes do not, and games in one process do not disturb each other."""

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.agents.gymnasium_agent.worker import GymnasiumAgent
from gymq.workers.resources.textarena.word_data import word_data
from gymq.workers.resources.textarena.worker import MAX_ACTION_LENGTH, Games

import gymq
from gymq.protocol.messages import FailureClass
from gymq.testing import Harness, ScriptedModel, prompt, reply
from gymq.testing.agent_harness import AgentHarness

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("textarena") is None, reason='needs pip install "gymq[textarena]"'
)

EXAMPLES = Path(__file__).parents[1] / "data" / "example.jsonl"
ROWS = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
OPPONENT = {"opponent_model_server": {"type": "responses_api_models", "name": "opponent"}}
DUEL = {**prompt("Play."), "game": "TicTacToe-v0", "num_players": 2}


def script(row: dict[str, Any], name: str) -> list[str]:
    turns = json.loads(row["responses_create_params"]["metadata"][f"simulated_{name}"])
    return [action["text"] for turn in turns for action in turn]


async def play(row: dict[str, Any], actions: list[str]) -> tuple[gymq.Verdict, dict[str, Any]]:
    answers = iter([*actions, "I pass.", "I pass."])
    async with AgentHarness(GymnasiumAgent, Games, lambda params: reply(next(answers))) as harness:
        verdict, response = await harness.run(row)
    return verdict, response


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["game"])
async def test_a_solution_wins_and_a_mistake_does_not(row: dict[str, Any]) -> None:
    won, response = await play(row, script(row, "solution"))
    lost, _ = await play(row, script(row, "mistake"))
    assert (won.reward, won.fields["terminated"]) == (1.0, True)
    assert lost.reward < 0.5
    async with Harness(Games) as env:
        assert (await env.verify(row, response)).reward == 1.0


async def test_games_in_one_process_draw_for_themselves() -> None:
    async def observed(env: Harness[Games], row: dict[str, Any]) -> list[str]:
        session = await env.session(row)
        seen = [(await session.call("reset", {})).output]
        for _ in range(8):
            seen.append((await session.call("step", {"action": "[up]"})).output)
            await asyncio.sleep(0)
        return seen

    rows = [{**prompt("Play."), "game": "2048-v0", "seed": number} for number in range(5)]
    async with Harness(Games) as env:
        alone = [await observed(env, row) for row in rows]
        together = await asyncio.gather(*(observed(env, row) for row in rows))
    assert together == alone
    assert len({seen[0] for seen in alone}) > 1


@pytest.mark.parametrize(("player", "reward"), [(0, 1.0), (1, -1.0)])
async def test_a_model_plays_the_other_player(player: int, reward: float) -> None:
    """The first player always completes its row."""
    moves = {0: iter(["[0]", "[1]", "[2]"]), 1: iter(["[3]", "[4]"])}

    async def opponent(model: str, params: dict[str, Any]) -> dict[str, Any]:
        assert model == "opponent"
        assert [item["role"] for item in params["input"]][::2] == ["user"] * (len(params["input"]) // 2 + 1)
        return reply(next(moves[1 - player]))

    row = DUEL | {"player": player}
    async with Harness(Games, OPPONENT, models=ScriptedModel(opponent)) as env:
        session = await env.session(row)
        assert ("X" if player else "O") in (await session.call("reset", {})).output
        for move in moves[player]:
            await session.call("step", {"action": move})
        verdict = await session.verify(row, reply())
    assert (verdict.reward, verdict.fields["terminated"]) == (reward, True)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"game": "Ludo-v9"}, "TextArena has no game 'Ludo-v9'"),
        ({"game": ""}, "TextArena has no game ''"),
        ({"game": "Nim-v0", "num_players": 2}, "the option `opponent_model_server` names no model"),
        ({"game": "Mastermind-v0", "player": 1}, "player: must be less than num_players, 1, not 1"),
        ({"game": "TicTacToe-v0"}, "num_players: TicTacToe-v0: The number of players has to be 2"),
    ],
)
async def test_a_row_that_does_not_fit_is_refused(fields: dict[str, Any], problem: str) -> None:
    async with Harness(Games) as env:
        with pytest.raises(gymq.InvalidTask, match=problem):
            await env.session({**prompt("Play."), **fields})


async def test_an_opponent_that_does_not_answer_is_a_failure() -> None:
    async def opponent(model: str, params: dict[str, Any]) -> dict[str, Any]:
        raise gymq.RolloutError(FailureClass.MODEL_FAILED, "out of memory")

    async with Harness(Games, OPPONENT, models=ScriptedModel(opponent)) as env:
        session = await env.session(DUEL)
        with pytest.raises(gymq.JudgeFailed, match="out of memory"):
            await session.call("step", {"action": "[0]"})


async def test_an_endless_action_is_refused_and_does_not_count() -> None:
    async with Harness(Games) as env:
        session = await env.session(ROWS[0])
        step = json.loads((await session.call("step", {"action": "[" * (MAX_ACTION_LENGTH + 1)})).output)
        verdict = await session.verify(ROWS[0], reply())
    assert "at most 10000 characters" in step["observation"]
    assert verdict.fields["num_steps"] == 0


@pytest.fixture
def without_word_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which NLTK looks for them; nothing can be downloaded."""
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setattr(word_data, "_missing", {})
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    return tmp_path


async def test_word_lists_that_are_missing_are_named_in_one_sentence(without_word_lists: Path) -> None:
    async with Harness(Games) as env:
        with pytest.raises(gymq.ComponentFailed) as raised:
            await env.session({**prompt("Play."), "game": "Hangman-v0-raw"})
    text = str(raised.value)
    assert "Hangman-v0-raw cannot be started: word lists of NLTK are not here and cannot be downloaded (words: " in text
    assert text.endswith("put them into a folder that NLTK_DATA names")
    assert "\n" not in text


async def test_word_lists_that_are_here_are_used_without_a_download(without_word_lists: Path) -> None:
    lists = without_word_lists / "corpora" / "words"
    lists.mkdir(parents=True)
    (lists / "en-basic").write_text("lamp\n")
    won, _ = await play({**prompt("Play."), "game": "Hangman-v0-raw"}, ["[l]", "[lamp]"])
    assert (won.reward, word_data.missing) == (1.0, "")


async def test_an_option_that_names_no_game_ends_the_start() -> None:
    with pytest.raises(gymq.OptionsError, match="game: TextArena has no game 'Ludo'"):
        await Games({"game": "Ludo"}).start()
