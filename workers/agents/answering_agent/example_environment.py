"""Sums with a second try; the environment of `config.yaml`."""

from __future__ import annotations

from gymq import AskingEnvironment, Policy, Row, Verdict, responses


class SumRow(Row):
    """What a line of the data set has besides the prompt."""

    a: int
    b: int


class Sums(AskingEnvironment[SumRow]):
    """Reward 1 for the right sum, 0.5 if it is right at the second try."""

    reward_range = (0.0, 1.0)

    async def play(self, row: SumRow, policy: Policy) -> Verdict:
        asked = [responses.user_message(f"{row.a} + {row.b} = ? Reply with the number only.")]
        for number, reward in enumerate((1.0, 0.5), 1):
            reply = await policy.ask({"input": asked})
            if responses.output_text(reply).strip() == str(row.a + row.b):
                return Verdict(reward, tries=number)
            asked = [*asked, *reply["output"], responses.user_message("That is wrong. Add up again.")]
        return Verdict(0.0, tries=2)
