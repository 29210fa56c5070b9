"""proof_refinement_agent: ask for a proof, verify it, and ask again with what was wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pydantic

import gymq
from gymq import responses

CARRIED = ("model", "temperature", "top_p")  # parameters of the row that a correction is asked with
OF_AN_ATTEMPT = ("proof_status", "error_feedback", "correction_prompt")  # members of a verdict that are kept of each


class ProofRefinementAgent(gymq.Agent):
    """Attempts and verdicts in turn, until a proof is accepted or there is no other try; the last one counts."""

    class Options(gymq.AgentOptions):
        resources_server: gymq.Reference
        model_server: gymq.Reference
        max_correction_turns: pydantic.NonNegativeInt = 0  # attempts after the first
        include_all_attempts: bool = True

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        attempts: list[dict[str, Any]] = []
        async with rollout.session() as session:
            while True:
                reply = await rollout.respond()
                if self.options.skip_verification:
                    return gymq.Verdict(self.options.skip_verification_reward, verification_skipped=True)
                turn = len(attempts)
                verdict = await session.verify(reply.response, row=_at_turn(rollout.row, turn))
                attempts.append(_attempt(turn, rollout.input, reply, verdict))
                prompt = verdict.fields.get("correction_prompt")
                if verdict.fields.get("needs_correction") is not True or not prompt:
                    break
                if turn == self.options.max_correction_turns:
                    break
                _start_anew(rollout, str(prompt))
        kept = {"all_attempts": attempts} if self.options.include_all_attempts else {}
        return gymq.Verdict(verdict.reward, **verdict.fields | {"total_turns": len(attempts)} | kept)


def _at_turn(row: bytes, turn: int) -> bytes:
    members: dict[str, msgspec.Raw] = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
    return msgspec.json.encode(members | {"turn_index": turn})


def _start_anew(rollout: gymq.Rollout, prompt: str) -> None:
    """A conversation of one message, without history and tools."""
    rollout.params = {name: rollout.params[name] for name in CARRIED if rollout.params.get(name) is not None}
    rollout.input = [responses.user_message(prompt)]
    rollout.output = []


def _attempt(turn: int, asked: list[dict[str, Any]], reply: gymq.Reply, verdict: gymq.Verdict) -> dict[str, Any]:
    return {
        "turn_index": turn,
        "input": asked,
        "response": reply.response,
        "generation": _last_text(reply.response),
        "reward": verdict.reward,
        **{name: verdict.fields.get(name) for name in OF_AN_ATTEMPT},
    }


def _last_text(response: Mapping[str, Any]) -> str:
    """Return the last text of the last message, as the model wrote it; empty if there is none."""
    messages = [item for item in response["output"] if responses.is_message(item)]
    content = messages[-1]["content"] if messages else ""
    if isinstance(content, str):
        return content
    return next((str(part["text"]) for part in reversed(content) if part["type"] == "output_text"), "")
