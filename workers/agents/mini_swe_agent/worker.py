"""mini_swe_agent: a fault in a repository, repaired by mini-swe-agent's loop in a container. Hidden tests decide."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

import msgspec
import pydantic
from gymq.workers.agents.mini_swe_agent.instance import ImageTemplate, Instance

import gymq
from gymq import responses
from gymq.agent import OwnVerifier
from gymq.protocol.decoding import UNDECODABLE

Item = dict[str, Any]


_decode_instance = msgspec.json.Decoder(Instance).decode


class MiniSweAgent(gymq.Agent):
    """Shell commands in a container, until the model submits a patch."""

    class Options(gymq.AgentOptions):
        resources_server: gymq.Reference
        model_server: gymq.Reference
        env: Literal["docker", "singularity"]
        concurrency: pydantic.PositiveInt = 16  # rollouts at a time in one process; each has a container
        cache_dir_template: ImageTemplate | None = None  # path of image files, with {instance_id} in it
        run_golden: bool = False  # submit the reference patch instead of asking the model
        step_timeout: pydantic.PositiveInt = 600  # seconds for one command
        step_limit: pydantic.PositiveInt = 250  # model calls
        verify_timeout_s: pydantic.PositiveFloat = 7200.0  # an image may have to be pulled
        # Existing configurations have these. The resources worker limits its tests, and an outcome is stored once.
        eval_timeout: pydantic.PositiveInt = 1800
        skip_if_exists: bool = False
        collapse_limit: pydantic.PositiveInt = 3

    @classmethod
    def own_verifier(cls, options: Mapping[str, Any]) -> OwnVerifier:
        """Return the resources worker of the same name, with the options that NeMo Gym gives to the agent."""
        shared = {name: options[name] for name in ("eval_timeout", "isolated") if name in options}
        return OwnVerifier("mini_swe_agent", shared)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_concurrency = self.options.concurrency

    async def start(self) -> None:
        try:
            from gymq.workers.agents.mini_swe_agent import harness
        except ModuleNotFoundError as error:
            text = f"{error.name} is not installed: set `isolated: true`, or install the worker's requirements.txt"
            raise gymq.OptionsError(f"{self.name}: {text}") from None
        self._new_episode = harness.Episode
        self._threads = ThreadPoolExecutor(self.options.concurrency, thread_name_prefix="mini-swe-agent")

    async def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        try:
            instance = _decode_instance(rollout.row)
        except UNDECODABLE as error:
            raise gymq.InvalidTask(f"row: {error}") from None
        asked: list[Item] = []
        if self.options.run_golden:
            rollout.response = instance.reference()
        else:
            asked, said = await self._episode(rollout, instance)
            rollout.output = list(said)
        prompt = {"responses_create_params": {**rollout.params, "input": asked}} if asked else {}
        if self.options.skip_verification:
            return gymq.Verdict(self.options.skip_verification_reward, verification_skipped=True, **prompt)
        async with rollout.session() as session:
            verdict = await session.verify(rollout.response)
        return gymq.Verdict(verdict.reward, **verdict.fields, **prompt)

    async def _episode(self, rollout: gymq.Rollout, instance: Instance) -> tuple[list[Item], list[Item]]:
        """Return the prompt, and what followed. The loop runs in a thread and asks the model from there."""
        loop = asyncio.get_running_loop()
        asking: list[Future[gymq.Reply]] = []

        def ask(history: list[Item], tools: list[Item]) -> gymq.Response:
            params = responses.validate_params({**rollout.params, "input": history, "tools": tools})
            asking[:] = [asyncio.run_coroutine_threadsafe(rollout.ask(params), loop)]
            return asking[0].result().response

        episode = self._new_episode(
            ask,
            env=self.options.env,
            image=instance.image_of(self.options.cache_dir_template),
            step_timeout=self.options.step_timeout,
            step_limit=self.options.step_limit,
            life_s=rollout.time_left() + 60.0,
        )
        try:
            return await loop.run_in_executor(self._threads, episode.run, instance.problem_statement)
        except asyncio.CancelledError:
            for question in asking:
                question.cancel()
            # Not in the pool, whose threads may all wait for a command: this episode's does until the container ends.
            threading.Thread(target=episode.stop).start()
            raise
