"""Servers of OpenEnv, written with its package: `python openenv_server.py ENVIRONMENT PORT`.

`echo_env` is the environment that `openenv init` makes; its folder must be on the path.
"""

import importlib
import random
import sys
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.types import Action, Observation, State

MAX_EPISODES = 64


class Guess(Action):
    number: int


class Said(Action):
    message: str


class Text(Observation):
    text: str


class HiddenNumber(Environment):
    """A number to guess; the seed decides which."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def reset(self, seed: int | None = None, **_: Any) -> Text:
        self.number = random.Random(seed).randint(1, 100)
        return Text(text="Guess a number from 1 to 100.", done=False)

    def step(self, action: Guess, **_: Any) -> Text:
        if action.number == self.number:
            return Text(text="right", done=True, reward=1.0)
        return Text(text="higher" if action.number < self.number else "lower", done=False, reward=-0.01)

    @property
    def state(self) -> State:
        return State()


class Secrets(MCPEnvironment):
    """A box that reveals its secret to the tool that is given its key."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = importlib.import_module("fastmcp").FastMCP("box")
        server.tool(self.look)
        server.tool(self.unlock)
        super().__init__(server)
        self.opened = False

    def look(self) -> str:
        """Look for the key."""
        return f"The key is {self.key}."

    def unlock(self, key: int) -> str:
        """Open the box."""
        self.opened |= key == self.key
        return "open" if self.opened else "closed"

    def reset(self, seed: int | None = None, **_: Any) -> Text:
        self.key = random.Random(seed).randint(1, 100)
        return Text(text="A box.", done=False)

    def step(self, action: Action, **more: Any) -> Observation:
        before = self.opened
        observed: Observation = super().step(action, **more)
        observed.reward = float(self.opened and not before)
        return observed

    def _step_impl(self, action: Action, **_: Any) -> Text:
        return Text(text="This box has tools.")

    @property
    def state(self) -> State:
        return State()


class FrozenLake(Environment):
    """A game of TextArena behind OpenEnv."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, **_: Any) -> Text:
        import textarena  # takes seconds

        self.game = textarena.make("FrozenLake-v0-raw")
        self.game.reset(num_players=1, seed=seed)
        return Text(text=self._seen(), done=False)

    def step(self, action: Said, **_: Any) -> Text:
        done, _info = self.game.step(action=action.message)
        rewards = self.game.close()[0] if done else None
        return Text(text=self._seen(), done=done, reward=None if rewards is None else rewards[0])

    def _seen(self) -> str:
        _, messages = self.game.get_observation()
        return "\n".join(message for _, message, _ in messages)

    @property
    def state(self) -> State:
        return State()


def environment(name: str) -> tuple[Any, type[Action], type[Observation]]:
    if name == "echo_env":
        models = importlib.import_module("echo_env.models")
        server = importlib.import_module("echo_env.server.echo_env_environment")
        return server.EchoEnvironment, models.EchoAction, models.EchoObservation
    return {"hidden_number": (HiddenNumber, Guess, Text), "frozen_lake": (FrozenLake, Said, Text)}[name]


if __name__ == "__main__":
    app = create_fastapi_app(*environment(sys.argv[1]), max_concurrent_envs=MAX_EPISODES)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
