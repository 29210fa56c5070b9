"""Define the command `gymq check-policy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import ClusterUrl, ConfigFiles, Overrides, Repeated
from gymq.errors import UsageError

"""Nats by which two calculations of a log prob in float32 may differ."""


def check_policy(
    *overrides: Overrides,
    model: str | None = None,
    model_url: str | None = None,
    option: Repeated = (),
    config: ConfigFiles = (),
    nats: ClusterUrl = None,
    reference: Path | None = None,
    tolerance: Annotated[float, Parameter(validator=Number(gt=0))] = 1e-4,
) -> int:
    """Check whether the tokens and log probs of a policy are those that were sampled.

    The policy is asked about a hundred short questions at several temperatures, with truncation, penalties, tools and a
    small limit of tokens, and what it reports is computed again: with --reference, or by the policy's own engine, which
    reads its replies as prompts, as vLLM does behind `vllm_model` and `local_vllm_model`. Without either, tokens are
    checked, and log probs are not. The exit status is 1 if anything differs, or no log probs could be compared.

    Args:
        model: with --model-url the name of the model there; otherwise the instance, not needed if there is only one.
        model_url: base URL of a vLLM engine, asked through `vllm_model`; its key is read from GYMQ_MODEL_API_KEY or
            OPENAI_API_KEY.
        option: option of `vllm_model` with --model-url, as `KEY=VALUE`; may be given several times.
        config: configuration with the model, which is started for the check; may be given several times. Without it
            and --model-url the model of a running cluster is checked.
        reference: checkpoint to compute with, in float32 on the CPU; needs transformers and torch.
        tolerance: nats by which log probs may differ. The default is for engines in float32.
    """
    import asyncio

    from gymq.ext.policy_check.checking import check_cluster, check_instance, configured, endpoint

    if model_url is not None and (config or model is None):
        raise UsageError("--model-url needs --model NAME, and goes without --config")
    if option and model_url is None:
        raise UsageError("--option is for --model-url; a configuration is changed by `key=value`")
    if overrides and not config:
        raise UsageError("changes to a configuration need --config FILE")
    if model_url is not None:
        found = endpoint(model_url, str(model), option)
    elif config:
        found = configured(config, overrides, model)
    else:
        return asyncio.run(check_cluster(model, nats, reference, tolerance))
    return asyncio.run(check_instance(found, reference, tolerance))


CHECK_POLICY = Command(
    "Author", "Check whether log probs and tokens are what was sampled.", "gymq.ext.policy_check.command:check_policy"
)
