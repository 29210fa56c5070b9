"""answering_agent: brings the model's replies to an environment that asks the model itself."""

from __future__ import annotations

import json
from typing import Any

import gymq
from gymq.ext.gateway import Capture
from gymq.protocol.messages import FailureClass, Stage
from gymq.responses import function_call

# All of a reply that an environment is given; tokens stay here.
OF_THE_REPLY = ("id", "created_at", "model", "status", "incomplete_details", "usage")
TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts")


class AnsweringAgent(gymq.Agent):
    """Asks the model what the environment asks, until the environment has finished and has a verdict."""

    class Options(gymq.AgentOptions):
        resources_server: gymq.Reference
        model_server: gymq.Reference

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        async with rollout.session() as session:
            capture = Capture(rollout)
            await _converse(session, capture)
            found = capture.conversation()
            rollout.output = list(found.output)
            fields = found.fields(rollout.params) | {"mask_sample": found.masked}
            if self.options.skip_verification:
                return gymq.Verdict(self.options.skip_verification_reward, verification_skipped=True, **fields)
            verdict = await session.verify(rollout.response)
        return gymq.Verdict(verdict.reward, **verdict.fields | fields)


async def _converse(session: gymq.Session, capture: Capture) -> None:
    conversation: list[dict[str, Any]] = []  # the last call and its reply; replies have their tokens
    asked = await _next(session, {})
    while asked["call"] is not None:
        params = asked["call"]
        params["input"] = conversation[: asked["keep"]] + params["input"]
        response = await capture.ask(params)
        conversation = [*params["input"], *response["output"]]
        output = [{name: item[name] for name in item if name not in TOKENS} for item in response["output"]]
        reply = {name: response[name] for name in OF_THE_REPLY if name in response}
        asked = await _next(session, {"reply": {**reply, "output": output}})


async def _next(session: gymq.Session, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the next call of the environment."""
    output = (await session.call(function_call("next", arguments, "next")))["output"]
    answer: Any = json.loads(output) if isinstance(output, str) and output.startswith("{") else output
    if not isinstance(answer, dict) or "call" not in answer:
        text = f"the environment is not one that answering_agent can serve, it answered {output!r:.300}"
        raise gymq.RolloutError(FailureClass.COMPONENT_FAILED, text, stage=Stage.TOOL)
    return answer
