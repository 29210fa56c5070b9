"""vLLM's engine inside the worker process: no HTTP server, requests come over NATS."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping

from gymq.workers.models.local_vllm_model.backend import AnyEngine, LocalBackend
from gymq.workers.models.local_vllm_model.options import LocalVLLMOptions
from gymq.workers.models.local_vllm_model.serve_args import SOCKETS, arguments, environment, sampler
from gymq.workers.models.vllm_model.asked import Backend
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq
from gymq.processes.held_folder import HeldFolder


class LocalVLLMModel(VLLMModel):
    """Starts an engine, keeps it busy, and answers as `vllm_model` does."""

    Options: type[LocalVLLMOptions] = LocalVLLMOptions
    is_client = False

    _engine: AnyEngine | None = None

    async def start(self) -> None:
        options = self.options
        self.is_announced = bool(options.base_url)
        if not options.base_url:
            if options.return_token_id_information:
                # The engine is ours: it names the tokens itself, in numbers and in the same reply.
                self.options = options.model_copy(update={"request_prompt_and_generation_token_ids": True})
            self._sockets = HeldFolder.take()
            variables = environment(options, os.environ, self._sockets.path)
            self._engine = await asyncio.to_thread(_make_engine, self.options, variables)
        await super().start()
        if self._engine is not None:
            # A few more than run at a time, so that the next is there when one ends.
            self.max_concurrency = self._engine.max_num_seqs * 5 // 4

    async def probe(self, timeout_s: float) -> None:
        if self.options.base_url:  # otherwise the engine is started with the worker
            await super().probe(timeout_s)

    async def stop(self) -> None:
        await super().stop()
        if self._engine is not None:
            os.environ.pop(SOCKETS, None)  # processes started from now on must not look for it
            self._sockets.release()

    def backend(self) -> Backend:
        if self._engine is None:
            return super().backend()
        return LocalBackend(self._engine, self.name, sampler(self.options))

    def load(self) -> gymq.ModelLoad | None:
        return super().load() if self._engine is None else self._engine.load()

    async def load_weights(self, update: gymq.WeightsUpdate) -> None:
        if self._engine is None:
            await super().load_weights(update)
        else:
            await self._engine.load_weights(update)


def _make_engine(options: LocalVLLMOptions, variables: Mapping[str, str]) -> AnyEngine:
    """Return the engine, not started yet.

    Importing vLLM or Ray takes seconds, and with `base_url` neither is needed.
    """
    if options.ray is not None:
        with _told("ray", "Ray"):
            from gymq.workers.models.local_vllm_model.ray_engine import RayEngine
        return RayEngine(arguments(options), variables, options)
    os.environ.update(variables)
    with _told("vllm", "vLLM"):
        from gymq.workers.models.local_vllm_model.engine import Engine
    return Engine(arguments(options))


@contextlib.contextmanager
def _told(module: str, name: str) -> Iterator[None]:
    """Explain in the error how to install the missing packages."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        message = f"{name} is not installed here: pip install 'gymq[{module}]'"
        raise ModuleNotFoundError(message, name=module) from None
