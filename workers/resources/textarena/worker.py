"""textarena: the games of TextArena. The policy is one player; a model plays the others."""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pydantic
from gymq.workers.resources.textarena.word_data import word_data

import gymq
from gymq import responses
from gymq.authoring import importing

if TYPE_CHECKING:
    from textarena import Env, State

T = TypeVar("T")
MAX_ACTION_LENGTH = 10_000  # characters; games search actions with patterns of their own


class GameRow(gymq.Row):
    game: str = ""  # its id in TextArena; empty: the option's
    seed: int | None = None  # of the game's chance; None: one that follows from the row
    num_players: pydantic.PositiveInt = 1
    player: pydantic.NonNegativeInt = 0  # which of them the policy is


class Games(gymq.TextEnvironment[GameRow]):
    """The reward that the game gives to the policy's player at its end, -1 for a loss to 1 for a win."""

    class Options(gymq.WorkerOptions):
        game: str = ""  # for rows that name none
        opponent_model_server: gymq.Reference | None = None  # plays the other players

    reward_range = (-1000.0, 1000.0)  # most games give -1 to 1

    async def start(self) -> None:
        with importing("textarena"):
            import textarena
            from textarena.envs.registration import ENV_REGISTRY
        word_data.install()
        self._make, self._games = textarena.make, ENV_REGISTRY
        if self.options.game and self.options.game not in self._games:
            raise gymq.OptionsError(f"{self.name}: game: TextArena has no game {self.options.game!r}")

    async def reset(self, row: GameRow) -> str:
        game = row.game or self.options.game
        if game not in self._games:
            raise gymq.InvalidTask(f"game: TextArena has no game {game!r:.100}")
        if row.player >= row.num_players:
            raise gymq.InvalidTask(f"player: must be less than num_players, {row.num_players}, not {row.player}")
        if row.num_players > 1 and self.options.opponent_model_server is None:
            raise gymq.InvalidTask(f"{game} has other players, but the option `opponent_model_server` names no model")
        self.player = row.player
        self.said: dict[int, list[Any]] = {}  # to and by the other players
        self.chance = self.random.getstate()
        seed = self.random.getrandbits(32) if row.seed is None else row.seed
        try:
            await asyncio.to_thread(self._import, game)
            self.game: Env = self._by_own_chance(lambda: self._make(game))
            self._by_own_chance(lambda: self.game.reset(num_players=row.num_players, seed=seed))
        except AssertionError as error:  # the library's checks of the number of players
            raise gymq.InvalidTask(f"num_players: {game}: {error}") from None
        except Exception as error:  # games look for word lists and services
            raise gymq.ComponentFailed(f"{game} cannot be started: {_reason(error)}") from error
        if await self._others_play(done=False):
            raise gymq.ComponentFailed(f"{game} was over before the policy's first turn")
        return self._seen_by(self.player)

    def _import(self, game: str) -> None:
        """Import a game, which may download what it needs."""
        entry = self._games[game].entry_point
        if isinstance(entry, str):
            importlib.import_module(entry.partition(":")[0])

    async def step(self, action: str) -> gymq.StepResult:
        if len(action) > MAX_ACTION_LENGTH:
            raise gymq.ToolError(422, f"An action has at most {MAX_ACTION_LENGTH} characters.")
        done = self._act(action)
        done = await self._others_play(done)
        if not done:
            return self._seen_by(self.player), 0.0, False, False, {}
        rewards, about = self.game.close()
        if rewards is None or rewards.get(self.player) is None:
            raise gymq.ComponentFailed("the game ended without a reward for the policy")
        info = about.get(self.player, {})
        ended = "\n".join(filter(None, [self._seen_by(self.player), info.get("reason")]))
        return ended, rewards[self.player], True, False, {str(name): value for name, value in info.items()}

    async def _others_play(self, done: bool) -> bool:
        """Let the others act until it is the policy's turn; return whether the game is over."""
        while not done and self._state.current_player_id != self.player:
            done = self._act(await self._action_of(self._state.current_player_id))
        return done

    async def _action_of(self, player: int) -> str:
        opponent = self.options.opponent_model_server
        assert opponent is not None
        said = self.said.setdefault(player, [])
        said.append(responses.user_message(self._seen_by(player)))
        reply = await self.ask(opponent.name, {"input": said})
        said += reply["output"]
        return responses.assistant_text(reply)

    def _act(self, action: str) -> bool:
        done, _ = self._by_own_chance(lambda: self.game.step(action=action))
        return bool(done)

    def _seen_by(self, player: int) -> str:
        """Return what the game has shown a player since the last time, without the player's own actions."""
        state = self._state
        shown, state.observations[player] = state.observations[player], []
        lines = []
        for sender, message, _ in shown:
            if sender != player:
                is_game = sender not in range(state.num_players)
                lines.append(
                    message if is_game else f"[{state.role_mapping.get(sender, f'Player {sender}')}] {message}"
                )
        return "\n".join(lines).strip()

    @property
    def _state(self) -> State:
        # Below the wrappers, which repeat everything in each observation.
        state: State = self.game.state
        return state

    def _by_own_chance(self, play: Callable[[], T]) -> T:
        """Run a part of the game, which draws from Python's own generator, with the state that this game left there."""
        of_others = random.getstate()
        random.setstate(self.chance)
        try:
            return play()
        finally:
            self.chance = random.getstate()
            random.setstate(of_others)


def _reason(error: Exception) -> str:
    if type(error) is LookupError and word_data.missing:
        missing = f"word lists of NLTK are not here and cannot be downloaded ({word_data.missing})"
        return f"{missing}; put them into a folder that NLTK_DATA names"
    return f"{type(error).__name__}: {error}"
