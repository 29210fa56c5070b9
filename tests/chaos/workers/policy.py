"""A policy that plays the script in a request's metadata, takes its time, and notes each call in a file."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import gymq
from gymq.testing import function_call, reply


class Policy(gymq.Model):
    """Calls `push` with each value of the script in turn; says the grade if all outputs were right."""

    is_client = True

    class Options(gymq.WorkerOptions):
        log: Path  # folder; in it one file a process, two lines a call: run/task/rollout/attempt turn begin|end time

    max_concurrency = 100_000

    async def start(self) -> None:
        path = self.options.log / f"model-{os.getpid()}"
        self._log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _note(self, session: str, turn: int, what: str) -> None:
        os.write(self._log, f"{session} {turn} {what} {time.time():.3f}\n".encode())

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        script = json.loads(request.params["metadata"]["script"])
        outputs = [item["output"] for item in request.params["input"] if item.get("type") == "function_call_output"]
        turn = len(outputs)
        self._note(request.session, turn, "begin")
        if script.get("kills") == "model":
            os._exit(1)
        latencies_s = script["latencies_s"]
        try:
            await asyncio.sleep(latencies_s[min(turn, len(latencies_s) - 1)])
        finally:
            self._note(request.session, turn, "end")  # also of a call that is stopped
        answer = self._answer(script, outputs)
        if "sampled" in script:
            answer["output"][0] |= _tokens(script, turn, request.params["input"])
        return answer

    async def load_weights(self, update: gymq.WeightsUpdate) -> None:
        """Say the same under the new version."""

    def _answer(self, script: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
        turn = len(outputs)
        if turn < len(script["values"]):
            return reply(function_call("push", {"turn": turn, "value": script["values"][turn]}, f"call_{turn}"))
        digest, right = 0, True
        for value, output in zip(script["values"], outputs, strict=True):
            digest = (digest * 31 + value) % (1 << 31)
            right = right and json.loads(output).get("digest") == digest
        return reply(f"grade {script['grade']}" if right else "the tools gave other outputs than they should")


def _tokens(script: dict[str, Any], turn: int, conversation: list[Any]) -> dict[str, list[int] | list[float]]:
    """Return the tokens of a call, as an engine has them that continues the prompt of the call before."""
    before: list[int] = []
    for item in reversed(conversation):
        if "generation_token_ids" in item:
            before = [*item["prompt_token_ids"], *item["generation_token_ids"]]
            break
    return {
        "prompt_token_ids": before + script["between"][turn],
        "generation_token_ids": script["sampled"][turn],
        "generation_log_probs": [-token / 1024 for token in script["sampled"][turn]],
    }
