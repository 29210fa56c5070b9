"""Sampling parameters for all rows of a run: fields of `responses_create_params` from the command line."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, cast

from omegaconf import OmegaConf

from gymq import responses
from gymq.config import overrides as command_line
from gymq.config.errors import ConfigError
from gymq.data.rows import PARAMS
from gymq.errors import did_you_mean
from gymq.responses.params import KNOWN

_ALIASES = {"max_tokens": "max_output_tokens"}
_WITHOUT_PROMPT = {"input": ""}


def sampling_overrides(overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Split the overrides `responses_create_params.KEY=VALUE`, with `+`, `++` or neither, from the others.

    Args:
        overrides: arguments of the command line, in order.

    Returns:
        The parameters with typed but unchecked values, and the other overrides unchanged.

    Raises:
        ConfigError: if one of them cannot be read.
    """
    own = [argument for argument in overrides if _sets_params(argument)]
    others = [argument for argument in overrides if not _sets_params(argument)]
    given = cast(dict[str, Any], OmegaConf.to_container(command_line.overlay(command_line.parse(own))))
    values = given.get(PARAMS)
    if values is None:
        return {}, others
    if not isinstance(values, dict):
        raise ConfigError(f"override {PARAMS}: must be a mapping, or give one parameter as {PARAMS}.NAME=VALUE")
    return values, others


def check_sampling(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check sampling parameters and return them under the names of the Responses API.

    Args:
        values: parameters of a Responses request; `max_tokens` is an alias of `max_output_tokens`.

    Raises:
        ConfigError: naming the first parameter that is unknown or has a value that does not fit.
    """
    params: dict[str, Any] = {}
    for given, value in values.items():
        name = _ALIASES.get(given, given)
        if name not in KNOWN:
            hint = did_you_mean(str(given), [*KNOWN, *_ALIASES])
            more = "what only some endpoints know belongs to the option extra_body of the model"
            raise ConfigError(f"{PARAMS}: no parameter {given}{hint}; {more}")
        if name in params:
            other = next(alias for alias, meant in _ALIASES.items() if meant == name)
            raise ConfigError(f"{PARAMS}.{name}: given twice, also as {other}")
        if isinstance(value, float) and not isfinite(value):
            raise ConfigError(f"{PARAMS}.{name}: must be a finite number, not {value}")
        params[name] = value
    try:
        checked = responses.validate_params(_WITHOUT_PROMPT | params)
    except responses.InvalidRequest as error:
        raise ConfigError(f"{PARAMS}.{error}".replace(" | null", "")) from None
    return {name: checked[name] for name in params}


def _sets_params(argument: str) -> bool:
    key = argument.lstrip("+").partition("=")[0]
    return key.partition(".")[0].strip() == PARAMS
