"""The calls of judges are recorded with the verdict, whatever way the verifier asks, without a line of its own."""

from typing import Any

import pytest

import gymq
from gymq.ext.conversion.items import reasoning_item
from gymq.judge import Judge, JudgeOptions, Labels, last_text
from gymq.resources import judge_calls
from gymq.resources.asking_environment import AskingEnvironment
from gymq.testing import Harness, ScriptedModel, prompt, reply

OPTIONS = {"judge_model_server": {"type": "responses_api_models", "name": "judge"}}
USAGE = {"input_tokens": 20, "output_tokens": 3, "total_tokens": 23}


def said(response: dict[str, Any]) -> str | None:
    return Labels.exactly("[[A]]", "[[B]]").read(last_text(response))


class Asking(gymq.Resources[gymq.Row]):
    """Asks a judge with a reader, and once more without."""

    Options = JudgeOptions

    async def start(self) -> None:
        self.judge = Judge.of(self, self.options)
        self.fails = 0

    async def verify(self, request: gymq.VerifyRequest) -> gymq.Verdict:
        judgement = await self.judge.ask(f"Is this fine? {request.reply_text}", said)
        await self.ask("other", {"input": "And?", "instructions": "Be brief."})
        if self.fails:
            self.fails -= 1
            raise gymq.JudgeFailed("not yet")
        return gymq.Verdict(float(judgement.label == "[[A]]"))


async def judge(model: str, _params: dict[str, Any]) -> dict[str, Any]:
    thoughts = reasoning_item(["It may be."])
    return reply(thoughts, f"{model}: fine. [[A]]") | {"usage": USAGE}


async def test_each_call_is_in_the_verdict_with_its_label_and_tokens():
    async with Harness(Asking, OPTIONS, models=ScriptedModel(judge)) as env:
        fields = (await env.verify(prompt("2 + 2?"), reply("four"))).fields
    first, second = fields["judge_calls"]
    assert first.pop("seconds") >= 0
    assert first == {
        "model": "judge",
        "label": "[[A]]",
        "input_tokens": 20,
        "output_tokens": 3,
        "request": {"input": [{"role": "user", "content": "Is this fine? four"}]},
        "response": {
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "It may be."}]},
                {"role": "assistant", "content": "judge: fine. [[A]]"},
            ]
        },
    }
    assert (second["model"], second["label"]) == ("other", None)
    assert [item["content"] for item in second["request"]["input"]] == ["Be brief.", "And?"]
    assert (fields["judge_input_tokens"], fields["judge_output_tokens"]) == (40, 6)


async def test_a_verification_that_is_repeated_has_its_own_calls_only():
    async with Harness(Asking, OPTIONS, models=ScriptedModel(judge)) as env:
        env.author.fails = 1
        with pytest.raises(gymq.JudgeFailed, match="not yet"):
            await env.verify(prompt("2 + 2?"), reply("four"))
        assert len((await env.verify(prompt("2 + 2?"), reply("four"))).fields["judge_calls"]) == 2


async def test_a_verdict_without_a_judge_has_no_such_fields():
    class Plain(gymq.Resources[gymq.Row]):
        async def verify(self, request: gymq.VerifyRequest) -> float:
            return 1.0

    async with Harness(Plain) as env:
        assert (await env.verify(prompt("2 + 2?"), reply("four"))).fields == {}


async def test_long_texts_lose_their_middle_and_the_texts_of_a_verdict_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(judge_calls, "MAX_VERDICT_CHARS", 2 * judge_calls.MAX_TEXT_CHARS)
    text = "a" * 20_000 + "z" * 20_000
    async with Harness(Asking, OPTIONS, models=ScriptedModel(judge)) as env:
        (kept, _) = (await env.verify(prompt("x"), reply(text))).fields["judge_calls"]
        monkeypatch.setattr(judge_calls, "MAX_VERDICT_CHARS", 500)
        (left_out, short) = (await env.verify(prompt("x"), reply(text))).fields["judge_calls"]
    shown = kept["request"]["input"][0]["content"]
    assert len(shown) < judge_calls.MAX_TEXT_CHARS + 100
    assert "[… 24,014 characters are left out here …]" in shown
    assert (shown[:14], shown[-2:]) == ("Is this fine? ", "zz")
    assert (left_out["texts_left_out"], left_out["request"]["input"], left_out["input_tokens"]) == (True, [], 20)
    assert short["request"]["input"]


class Played(AskingEnvironment[gymq.Row]):
    """Asks the policy, then a judge, which may fail once."""

    fails = False

    async def play(self, row: gymq.Row, policy: Any) -> gymq.Verdict:
        await policy.ask({"input": "Your move?"})
        await self.ask("judge", {"input": "A good move?"})
        if self.fails:
            self.fails = False
            raise gymq.JudgeFailed("not yet")
        return gymq.Verdict(1.0)


@pytest.mark.parametrize("fails", [False, True])
async def test_the_calls_of_a_play_are_in_its_verdict_once(fails: bool):
    async with Harness(Played, models=ScriptedModel(judge)) as env:
        session = await env.session(prompt(""))
        await session.call("next", {"reply": None})
        env.author.fails = fails
        await session.call("next", {"reply": reply("e4")})
        response = reply("e4")
        if fails:
            with pytest.raises(gymq.JudgeFailed):
                await session.verify(prompt(""), response)
        fields = (await session.verify(prompt(""), response)).fields
    assert [call["request"]["input"][0]["content"] for call in fields["judge_calls"]] == ["A good move?"]
