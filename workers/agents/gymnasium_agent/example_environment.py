"""A number to guess, with hints; the environment of `config.yaml`."""

from __future__ import annotations

import gymq

MAX_GUESSES = 10
MAX_DIGITS = 9


class GuessRow(gymq.Row):
    """What a line of the data set has besides the prompt."""

    number: int
    highest: int


class Guess(gymq.TextEnvironment[GuessRow]):
    """Reward 1 for the right number within ten guesses, with a hint after each."""

    reward_range = (0.0, 1.0)

    def reset(self, row: GuessRow) -> str:
        self.number, self.left = row.number, MAX_GUESSES
        return f"I think of a number from 1 to {row.highest}. Guess it; you have {MAX_GUESSES} guesses."

    def step(self, action: str) -> gymq.StepResult:
        if not action.strip().isdecimal():
            raise gymq.ToolError(422, "Reply with a number.")
        guess = int(action.strip()[:MAX_DIGITS])
        self.left -= 1
        hint = "Right." if guess == self.number else "It is higher." if guess < self.number else "It is lower."
        is_right = guess == self.number
        return hint, float(is_right), is_right, self.left == 0, {"left": self.left}
