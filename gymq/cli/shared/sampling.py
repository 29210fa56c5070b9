"""Sampling parameters of a collection, however they are given on its command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymq.cli.shared.parameters import Sampling
from gymq.config.sampling import check_sampling, sampling_overrides
from gymq.data.rows import PARAMS
from gymq.errors import UsageError


def read_sampling(overrides: Sequence[str], options: Sampling) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters that replace those of each row, and the overrides that are about something else.

    Args:
        overrides: arguments of the command line; those of `responses_create_params` are parameters.
        options: the options of the command line.
    """
    of_overrides, others = sampling_overrides(overrides)
    of_settings, _ = sampling_overrides([f"+{PARAMS}.{setting}" for setting in options.sampling])
    flags = {"temperature": options.temperature, "top_p": options.top_p, "max_tokens": options.max_tokens}
    of_flags = {name: value for name, value in flags.items() if value is not None}
    given = {
        f"{PARAMS}.KEY=VALUE": of_overrides,
        "--sampling": of_settings,
        "--temperature, --top-p, --max-tokens": of_flags,
    }
    merged: dict[str, Any] = {}
    places: dict[str, str] = {}
    for place, values in given.items():
        if "seed" in values:
            raise UsageError(
                f"{place}: a seed for all rollouts would repeat each of them; "
                "--num-repeats-add-seed gives each repeat its own seed"
            )
        for name, value in check_sampling(values).items():
            if merged.setdefault(name, value) != value:
                raise UsageError(f"{name} is {merged[name]} with {places[name]} and {value} with {place}; give it once")
            places.setdefault(name, place)
    return merged, others
