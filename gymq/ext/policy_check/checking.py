"""The work of `gymq check-policy`."""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymq.bus import Bus
from gymq.bus.discovery import find_workers
from gymq.bus.rpc.calls import Calls
from gymq.cli.shared.cluster import connected, running_url
from gymq.cluster.launch import Cluster
from gymq.config import Config, Instance, load
from gymq.config.assembled import POLICY, POLICY_KEYS, first_set, instance
from gymq.config.overrides import from_option
from gymq.config.process_settings import process_variables
from gymq.errors import UsageError
from gymq.ext.policy_check.findings import Finding, check_policy
from gymq.ext.policy_check.reference import PolicyReference
from gymq.ext.policy_check.source import LogProbSource, Unknown
from gymq.ext.policy_check.vllm_prompts import PromptLogProbs
from gymq.failures import RolloutError
from gymq.protocol import subjects
from gymq.protocol.messages import Generate, Generated, PromptRead, ReadPrompt
from gymq.render import listing, listing_console, printable

CALL_S = 60.0  # all calls are made at once
_VLLM = "vllm_model"
_MODELS = "responses_api_models"


def endpoint(url: str, model: str, option: Sequence[str]) -> tuple[Config, Instance]:
    """Return a configuration with `vllm_model` in front of an engine."""
    options = {
        "return_token_id_information": True,
        "request_prompt_and_generation_token_ids": True,
        "uses_reasoning_parser": False,
        "model": model,
        "base_url": url,
        "api_key": first_set(POLICY_KEYS),
    }
    given = [from_option(f"--option {one.partition('=')[0]}", f"++{POLICY}.{_MODELS}.{_VLLM}.{one}") for one in option]
    config = load([], given, initial={POLICY: instance(_MODELS, _VLLM, **options)})
    return config, config.instance(POLICY)


def configured(files: Sequence[Path], overrides: Sequence[str], name: str | None) -> tuple[Config, Instance]:
    """Return a configuration and the model in it that is to be checked."""
    config = load([str(file) for file in files], overrides)
    models = {found.name: found for found in config.instances if found.kind == "models"}
    return config, models[_chosen(name, list(models), "the configuration")]


def _chosen(name: str | None, models: Sequence[str], place: str) -> str:
    if name is None and len(models) == 1:
        return models[0]
    if name is None or name not in models:
        models_there = f"the models of {place} are {', '.join(sorted(models)) or 'none'}"
        raise UsageError(f"missing --model NAME; {models_there}" if name is None else f"no {name!r}; {models_there}")
    return name


async def check_instance(found: tuple[Config, Instance], reference: Path | None, tolerance: float) -> int:
    """Check a model in a cluster that is started for it."""
    config, checked = found
    source = await _reference(reference)
    with tempfile.TemporaryDirectory(prefix="gymq-check-") as folder:
        variables = process_variables(config.tree)
        async with (
            Cluster([checked], folder=Path(folder), log_level="warning", variables=variables) as cluster,
            await Bus.connect(cluster.url, role="client", name="gymq check-policy") as bus,
        ):
            return _report(await _check(bus, checked.name, source, tolerance))


async def check_cluster(name: str | None, nats: str | None, reference: Path | None, tolerance: float) -> int:
    """Check a model of a running cluster."""
    source = await _reference(reference)
    async with connected(await running_url(nats), name="gymq check-policy") as bus:
        models = {one["name"] for one in await find_workers(bus) if one["metadata"]["kind"] == "models"}
        return _report(await _check(bus, _chosen(name, sorted(models), "the cluster"), source, tolerance))


async def _reference(checkpoint: Path | None) -> LogProbSource | None:
    if checkpoint is not None:
        return await asyncio.to_thread(PolicyReference, checkpoint)
    return Unknown() if importlib.util.find_spec("numpy") is None else None


async def _check(bus: Bus, model: str, reference: LogProbSource | None, tolerance: float) -> list[Finding]:
    """Check a model, without a reference by its engine's log probs of prompts."""
    calls = Calls(bus)
    subject = subjects.JUDGE.of(model)  # which clients may ask

    async def ask(params: dict[str, Any]) -> dict[str, Any]:
        session = f"check-{secrets.token_hex(8)}"
        request = Generate(rollout=session, timeout_s=CALL_S, params=params, session=session)
        generated = await calls.call(subject, request)
        assert isinstance(generated, Generated)
        return generated.response

    async def read(prompt: list[int] | dict[str, Any], num_log_probs: int, first: int) -> PromptRead:
        request = ReadPrompt(rollout="check", timeout_s=CALL_S, prompt=prompt, num_log_probs=num_log_probs, first=first)
        answer = await calls.call(subject, request)
        assert isinstance(answer, PromptRead)
        return answer

    try:
        return await check_policy(ask, reference or PromptLogProbs(read), tolerance)
    except RolloutError as error:
        raise UsageError(f"{model}: {error.message}") from None


def _report(findings: Sequence[Finding]) -> int:
    numbers = ("largest", "mean", "compared")
    table = listing("", "check", *numbers, "verdict", "note", numbers=numbers, names=("verdict",))
    for found in findings:
        table.add_row(
            found.check,
            "" if found.largest is None else f"{found.largest:.1e}",
            "" if found.mean is None else f"{found.mean:.1e}",
            f"{found.tokens:,}" if found.tokens else "",
            found.verdict,
            printable(found.note),
        )
    listing_console().print(table)
    compared = any(found.largest is not None for found in findings)
    return 1 if not compared or any(found.verdict == "differs" for found in findings) else 0
