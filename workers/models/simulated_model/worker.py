"""A policy that needs no engine: it plays scripts, waits, pads and fails as configured, and repeats itself exactly.

What it says depends on the option `seed`, the session and the conversation; never on the process, the time or the
order of requests.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import pydantic
from gymq.workers.models.simulated_model.chance import Chance, exponential, lognormal, skill_of_task, uniforms
from gymq.workers.models.simulated_model.filler import Filler
from gymq.workers.models.simulated_model.invention import BadSchema, invent
from gymq.workers.models.simulated_model.prefix_cache import BLOCK_TOKENS, PrefixCache
from gymq.workers.models.simulated_model.reply import Output, prompt_ids
from gymq.workers.models.simulated_model.script import MISTAKE, SOLUTION, Turn, read_script, turn_at

import gymq
from gymq.protocol.tokens import to_json
from gymq.responses import is_generated, split_at_first_generated

Probability = Annotated[float, pydantic.Field(ge=0.0, le=1.0)]

_ANSWER = "This is a simulated answer."


class SimulatedModel(gymq.Model):
    """Replay the row's solution or mistake, or a fixed text."""

    is_client = True

    class Options(gymq.WorkerOptions):
        seed: int = 0
        skill: Probability = 0.5  # of the rollouts with a script, so many play the solution
        skill_spread: Annotated[float, pydantic.Field(ge=0.0, lt=1.0)] = 0.0  # how much tasks differ in difficulty
        latency_s: pydantic.NonNegativeFloat = 0.0  # mean, seconds
        latency_distribution: Literal["constant", "exponential", "lognormal"] = "constant"
        output_tokens: pydantic.NonNegativeInt = 0  # mean of the padding
        tool_use: Probability = 0.0  # without a script: how likely the first turn calls a tool
        token_ids: bool = False
        cache_blocks: pydantic.NonNegativeInt = 0  # of 16 tokens, in the prefix cache; 0: there is none
        prefill_tokens_per_s: pydantic.NonNegativeFloat = 0.0  # of those not in the cache; 0: they take no time
        failure_rate: Probability = 0.0  # of the replies, so many are failures
        hang_rate: Probability = 0.0  # so many never come
        empty_rate: Probability = 0.0  # so many are messages without text

        @pydantic.model_validator(mode="after")
        def _check_rates(self) -> SimulatedModel.Options:
            if self.failure_rate + self.hang_rate + self.empty_rate > 1.0:
                raise ValueError("failure_rate, hang_rate and empty_rate add up to more than 1")
            return self

    max_concurrency = 100_000  # waiting costs nothing

    async def start(self) -> None:
        self._chance = Chance(self.options.seed)
        self._filler = Filler()
        self._cache = PrefixCache(self.options.cache_blocks) if self.options.cache_blocks else None
        self._prefilling = asyncio.Lock()  # one prompt after another
        self._num_waiting = 0  # prompts
        self._running: list[int] = []  # tokens of the prompts of calls that do not wait

    def load(self) -> gymq.ModelLoad | None:
        if self._cache is None:
            return None
        num_tokens = self.options.cache_blocks * BLOCK_TOKENS
        return gymq.ModelLoad(len(self._running), self._num_waiting, sum(self._running) / num_tokens, num_tokens)

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        options, params = self.options, request.params
        metadata = params.get("metadata") or {}
        prompt, said = split_at_first_generated(params["input"])
        scripts = [metadata.get(SOLUTION), metadata.get(MISTAKE)]
        session = request.session.encode()
        task = self._chance.digest(b"task", to_json(prompt), to_json(scripts))
        turn = self._chance.digest(b"turn", session, task, b"%d" % len(said))
        fate, latency, tool, length, words, *_ = uniforms(turn)

        failing = options.hang_rate + options.failure_rate
        if fate < options.hang_rate:
            await asyncio.sleep(request.timeout_s)
            raise gymq.RolloutError(gymq.FailureClass.DEADLINE_EXCEEDED, "no answer, as the option hang_rate asks for")
        latency_s = self._latency_s(latency) if options.latency_s else 0.0
        num_cached = 0
        if self._cache is not None:
            num_cached = await self._compute(self._cache, params, latency_s)
        elif latency_s:
            await asyncio.sleep(latency_s)
        if fate < failing:
            raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "failed, as the option failure_rate asks for")

        output = Output(turn[:16].hex(), token_ids=options.token_ids)
        position = _num_turns(said)
        padding = self._num_padding_tokens(length)
        if fate < failing + options.empty_rate:
            output.add_message("")
        elif scripts != [None, None]:
            script = read_script(metadata, succeeds=self._succeeds(session, task))
            self._play(turn_at(script, position), output, padding, words)
        elif position == 0 and tool < options.tool_use and (tools := _functions(params)):
            _call_one(tools, output, random.Random(turn))
        elif padding:
            output.add_message(*self._filler.cut(words, padding))
        else:
            output.add_message(_ANSWER)
        output.end_turn()

        limit = params.get("max_output_tokens")
        if limit is None or output.num_tokens <= limit:
            return output.response(params, self._cache, num_cached, incomplete=False)
        cut = Output(turn[:16].hex(), token_ids=options.token_ids)
        cut.add_message(*self._filler.cut(words, limit))
        return cut.response(params, self._cache, num_cached, incomplete=True)

    async def _compute(self, cache: PrefixCache, params: dict[str, Any], latency_s: float) -> int:
        """Wait as long as a reply takes, and the tokens of the prompt that are not cached; return how many are."""
        prompt = prompt_ids(params)
        self._num_waiting += 1
        try:
            await self._prefilling.acquire()
        finally:
            self._num_waiting -= 1
        self._running.append(len(prompt))
        try:
            try:
                num_cached = cache.num_cached(prompt)
                if self.options.prefill_tokens_per_s:
                    await asyncio.sleep((len(prompt) - num_cached) / self.options.prefill_tokens_per_s)
                cache.keep(prompt)
            finally:
                self._prefilling.release()
            if latency_s:
                await asyncio.sleep(latency_s)
            return num_cached
        finally:
            self._running.remove(len(prompt))

    def _succeeds(self, session: bytes, task: bytes) -> bool:
        """Return the rollout's luck against the task's difficulty: the same in every turn."""
        luck = uniforms(self._chance.digest(b"luck", session))[0]
        return luck < skill_of_task(self.options.skill, self.options.skill_spread, task)

    def _latency_s(self, uniform: float) -> float:
        match self.options.latency_distribution:
            case "exponential":
                return exponential(self.options.latency_s, uniform)
            case "lognormal":
                return lognormal(self.options.latency_s, uniform)
            case _:
                return self.options.latency_s

    def _num_padding_tokens(self, uniform: float) -> int:
        mean = self.options.output_tokens
        return max(1, round(lognormal(mean, uniform))) if mean else 0

    def _play(self, turn: Turn, output: Output, padding: int, words: float) -> None:
        """Pads with reasoning, so that a verifier sees the script's own text and nothing else."""
        if padding:
            output.add_reasoning(*self._filler.cut(words, padding))
        for action in turn:
            if action.call is not None:
                output.add_call(action.call.name, action.call.arguments_text())
            if action.text is not None:
                output.add_message(action.text)


def _num_turns(said: Iterable[dict[str, Any]]) -> int:
    """Return how often the model has spoken: runs of items that it made."""
    turns = 0
    speaking = False
    for item in said:
        generated = is_generated(item)
        turns += generated and not speaking
        speaking = generated
    return turns


def _functions(params: dict[str, Any]) -> list[dict[str, Any]]:
    if params.get("tool_choice") == "none":
        return []
    return [tool for tool in params.get("tools") or () if tool.get("type") == "function"]


def _call_one(tools: list[dict[str, Any]], output: Output, rng: random.Random) -> None:
    tool = rng.choice(tools)
    try:
        arguments = invent(tool.get("parameters") or {"type": "object"}, rng)
    except BadSchema as error:
        message = f"parameters of the tool {tool['name']!r}: {error}"
        raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, message, retryable=False) from None
    output.add_call(tool["name"], to_json(arguments).decode())
