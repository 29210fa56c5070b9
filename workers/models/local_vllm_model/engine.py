"""vLLM's engine and its OpenAI application in this process. Imports vLLM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from gymq.workers.models.local_vllm_model import asgi
from gymq.workers.models.local_vllm_model.checkpoint import UnusableWeights, check_fit, shapes_at, shapes_in
from gymq.workers.models.local_vllm_model.direct import ENDED, DirectChat, NotDirect, Settings
from gymq.workers.models.local_vllm_model.engine_processes import first_error
from gymq.workers.models.local_vllm_model.load_recorder import LoadRecorder
from gymq.workers.models.local_vllm_model.parser_errors import shorten_parser_errors
from gymq.workers.models.local_vllm_model.vllm_versions import find
from gymq.workers.models.local_vllm_model.weight_versions import note, noted, put_on
from gymq.workers.models.vllm_model.continuation import last_sampled
from gymq.workers.models.vllm_model.exact_prompts import CannotRender, ExactPrompts, plain
from gymq.workers.models.vllm_model.prepare import has_media, tokenize_body
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM

from gymq import ModelLoad, WeightsUpdate
from gymq.errors import GymqError

log = logging.getLogger("gymq.local_vllm_model")

CHAT = "/v1/chat/completions"
_TOKENIZE = "/tokenize"
_LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_OK = 200


class ArgumentsError(GymqError, ValueError):
    """`vllm serve` does not take these arguments; one sentence."""


class EngineBroken(GymqError):
    """The engine can answer no more."""


class _Parser(FlexibleArgumentParser):
    def error(self, message: str) -> Any:
        raise ArgumentsError(f"vllm_serve_kwargs: {message}")


class _LLM(AsyncLLM):
    """vLLM's engine, which notes the versions of the weights for `noted`."""

    async def generate(self, *arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
        async with aclosing(super().generate(*arguments, **named)) as outputs:
            async for output in outputs:
                note(output.outputs)
                yield output


class Engine:
    """One engine. The environment has to be set before this module is imported."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """
        Args:
            arguments: as after `vllm serve`.

        Raises:
            ArgumentsError: vLLM does not take them.
        """
        parser = find("make_arg_parser")(_Parser())
        self._args = parser.parse_args(list(arguments))
        try:
            find("validate_parsed_serve_args")(self._args)
        except (TypeError, ValueError) as error:
            raise ArgumentsError(f"vllm_serve_kwargs: {error}") from None
        self.recorder = LoadRecorder()
        # vLLM's processes are bound to the thread that starts them, so this one lives as long as the engine.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vllm")
        self._is_broken = False

    async def start(self) -> None:
        """Load the model; takes seconds to minutes, during which the event loop keeps running.

        Raises:
            EngineBroken: vLLM's processes cannot serve the model; the message says why.
            Exception: vLLM's error for a model that it cannot serve.
        """
        loop = asyncio.get_running_loop()
        self._llm = llm = await loop.run_in_executor(self._thread, self._make)
        await llm.update_weight_version("")  # until there is a push, the policy has no version
        tasks = await llm.get_supported_tasks()
        self._app = find("build_app")(self._args, tasks, llm.model_config)
        await find("init_app_state")(llm, self._app.state, self._args, tasks)
        shorten_parser_errors()
        self._app.state.server = SimpleNamespace()  # vLLM asks it to exit when the engine breaks; gymq runs no server
        self._tokenizer = llm.get_tokenizer()
        self._exact_prompts = ExactPrompts(
            _ends_of_turn(llm.model_config, self._tokenizer),
            lambda ids: str(self._tokenizer.decode(ids, skip_special_tokens=False)),
        )
        self._max_model_len = llm.model_config.max_model_len
        self._direct: DirectChat | None = None
        try:
            self._direct = DirectChat(llm, self._app.state)
        except NotDirect as error:
            log.info("chats go through vLLM's application, which costs more: %s", error)
        gc.collect()
        gc.freeze()  # what vLLM has imported and built stays; each full collection would look at all of it
        self._path: str | None = self._args.model  # the weights to go back to; None: they came as bytes

    def _make(self) -> AsyncLLM:
        folder = Path(self._args.model)
        self._shapes = shapes_at(folder) if any(folder.glob("*.safetensors")) else None
        config = AsyncEngineArgs.from_cli_args(self._args).create_engine_config()
        try:
            llm = _LLM.from_vllm_config(
                config,
                disable_log_stats=self._args.disable_log_stats,
                stat_loggers=[self.recorder.factory],
            )
        except Exception as error:
            reason = first_error()  # vLLM itself says that it can be found in the log
            if reason is None:
                raise
            raise EngineBroken(f"vLLM's engine cannot start: {reason}") from error
        if self._args.disable_log_stats and not self._args.otlp_traces_endpoint:
            # The recorder needs what the scheduler reports. A logger makes vLLM count each token of each request as
            # well, which is a fifth of the CPU of its front end.
            llm.log_stats = llm.output_processor.log_stats = False
        return llm

    async def stop(self) -> None:
        """End vLLM's processes."""
        self._llm.shutdown()
        self._thread.shutdown(wait=False)

    @property
    def is_broken(self) -> bool:
        """Whether the engine can answer no more. It does not recover."""
        return self._is_broken or bool(self._llm.errored)

    @property
    def max_num_seqs(self) -> int:
        """Requests that run at the same time."""
        return int(self._llm.vllm_config.scheduler_config.max_num_seqs)

    def load(self) -> ModelLoad:
        """As of the engine's last step; requests that were aborted since are not counted."""
        unfinished = self._llm.output_processor.get_num_unfinished_requests()
        running = min(self.recorder.running, unfinished)
        return ModelLoad(running, unfinished - running, self.recorder.kv_cache_use, self._kv_cache_tokens())

    def _kv_cache_tokens(self) -> int:
        config = self._llm.vllm_config
        of_rank = config.cache_config.kv_cache_size_tokens if config.cache_config.enable_prefix_caching else None
        return int(of_rank or 0) * int(config.parallel_config.data_parallel_size)

    async def post(
        self, path: str, body: Mapping[str, Any], _session: str = "", num_known: int = 0
    ) -> tuple[int, bytes | dict[str, Any]]:
        """Return the status of a request in one of vLLM's dialects, and its answer: JSON, or a chat completion.

        A chat continues the tokens of its earlier turns.

        Args:
            num_known: leading messages of a chat that are those of an earlier call, whose reply is the next one.
        """
        for name in _LENGTHS:
            if isinstance(body.get(name), int):
                body = {**body, name: min(body[name], self._max_model_len)}  # the engine gives what room there is
        if path == CHAT:
            prompt = None
            if self._direct is not None:
                try:
                    settings = await self._direct.settings(body)
                    prompt = await self._prompt(self._direct, settings, body["messages"], num_known)
                    return _OK, await self._direct.complete(settings, body, prompt)
                except NotDirect:
                    pass
            body = await self._with_exact_prompt(body, prompt)
        with noted() as found:
            status, answer = await asgi.post(self._app, path, body)
        if found.was_ended:
            return _OK, ENDED
        if status != _OK or not found.versions or not body.get("return_token_ids"):
            return status, answer
        completion = msgspec.json.decode(answer)
        put_on(completion, found.versions)
        return status, completion

    async def _prompt(
        self, direct: DirectChat, settings: Settings, messages: Sequence[Mapping[str, Any]], num_known: int
    ) -> list[int]:
        """Return the exact prompt of a chat."""
        if has_media(messages):
            raise NotDirect

        async def render(messages: Sequence[Mapping[str, Any]]) -> list[int]:
            return await direct.rendered(settings, messages)

        return await self._exact_prompts.prompt(messages, render, settings.shapes, num_known)

    async def _with_exact_prompt(self, body: Mapping[str, Any], prompt: list[int] | None) -> dict[str, Any]:
        """Return the chat for the application, with its exact prompt if a reply in its history has its sampled tokens.

        Args:
            prompt: it, if it is known.
        """
        history = body["messages"]
        without_tokens = {**body, "messages": plain(history)}
        # Tokens say nothing of images and sounds.
        if last_sampled(history) is None or has_media(history):
            return without_tokens

        async def render(messages: Sequence[Mapping[str, Any]]) -> list[int]:
            request = {**tokenize_body(body), "messages": messages, "add_generation_prompt": True}
            status, answer = await asgi.post(self._app, _TOKENIZE, request)
            if status != _OK:
                raise CannotRender
            return list(msgspec.json.decode(answer)["tokens"])

        if prompt is None:
            with contextlib.suppress(CannotRender):
                prompt = await self._exact_prompts.continued(history, render)
        if prompt is None:
            return without_tokens
        return {
            **without_tokens,
            "kv_transfer_params": {**body.get("kv_transfer_params", {}), "prompt_token_ids": prompt},
        }

    async def load_weights(self, update: WeightsUpdate) -> None:
        """Replace the weights; see `WeightsUpdate`.

        Raises:
            UnusableWeights: they do not fit, or cannot be read; the old ones answer.
            EngineBroken: the old ones could not be brought back.
        """
        await asyncio.to_thread(self._check, update)
        await self._llm.pause_generation(mode=update.mode)
        try:
            await self._replace(update)
            await self._llm.update_weight_version(update.policy_version)
        finally:
            if not self.is_broken:
                # What the old weights computed says nothing to the new ones.
                await self._llm.reset_prefix_cache()
                await self._llm.resume_generation()

    def _check(self, update: WeightsUpdate) -> None:
        """Check an update before the engine loads it: afterwards, only loading the old weights again undoes it."""
        if update.weights is not None:
            shapes = shapes_in(BytesIO(update.weights), "what came as bytes")
        elif update.path is not None:
            shapes = shapes_at(Path(update.path))
        else:
            raise UnusableWeights("they are only announced, and this engine loads its weights itself: push them")
        if self._shapes is not None:
            check_fit(shapes, self._shapes)

    async def _replace(self, update: WeightsUpdate) -> None:
        try:
            if update.weights is not None:
                await self._llm.collective_rpc("load_bytes", args=(update.weights,))
            elif update.path is not None:
                await self._reload(update.path)
        except Exception as error:
            await self._go_back()
            raise UnusableWeights(f"the weights cannot be loaded: {_first_line(error)}") from None
        self._path = update.path

    async def _go_back(self) -> None:
        try:
            if self._path is None:
                raise EngineBroken("the old weights came as bytes")
            await self._reload(self._path)
        except Exception as error:
            self._is_broken = True
            reason = _first_line(error)
            raise EngineBroken(f"new weights cannot be loaded, nor the old ones again: {reason}") from None

    async def _reload(self, path: str) -> None:
        if await asyncio.to_thread(os.path.isfile, path):
            await self._llm.collective_rpc("load_file", args=(path,))
        else:
            await self._llm.collective_rpc("reload_weights", kwargs={"weights_path": path})


def _ends_of_turn(model_config: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens at which sampling stops."""
    given = (model_config.try_get_generation_config() or {}).get("eos_token_id")
    ends = given if isinstance(given, list) else [given]
    return frozenset(token for token in (*ends, tokenizer.eos_token_id) if token is not None)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
