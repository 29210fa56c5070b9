"""Values that refer to others: unset values, and the targets of interpolations `${a.b}`."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from gymq.config.directives import MISSING
from gymq.config.errors import ConfigError, Keys, did_you_mean, dotted
from gymq.config.sources import Source, place


def resolve(config: DictConfig, sources: Sequence[Source]) -> dict[str, Any]:
    """Return a configuration as plain data, with all interpolations resolved.

    Args:
        config: a merged configuration without directives.
        sources: its layers, to name lines in messages.

    Raises:
        ConfigError: naming all values that are unset, or else all that cannot be resolved.
    """
    tree = cast(dict[str, Any], OmegaConf.to_container(config))
    unset = list(_unset(tree, ()))
    if unset:
        listed = ", ".join(f"{dotted(keys)}{place(sources, keys)}" for keys in unset)
        count = "1 required value is" if len(unset) == 1 else f"{len(unset)} required values are"
        example = f"++{dotted(unset[0])}=VALUE"
        raise ConfigError(f"{count} unset ({MISSING}): {listed}; give values in env.yaml, in a file, or with {example}")
    try:
        return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    except OmegaConfBaseException as error:
        problems = [
            f"{dotted(keys)}: cannot be resolved: {_reason(problem, tree)}{place(sources, keys)}"
            for keys, problem in _unresolvable(config, ())
        ]
        raise ConfigError("; ".join(problems) or str(error).splitlines()[0]) from None


def _unset(value: Any, keys: Keys) -> Iterator[Keys]:
    if isinstance(value, str) and value == MISSING:
        yield keys
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _unset(item, (*keys, key))


def _unresolvable(config: DictConfig | ListConfig, keys: Keys) -> Iterator[tuple[Keys, InterpolationResolutionError]]:
    names: Any = config if isinstance(config, DictConfig) else range(len(config))
    for key in names:
        try:
            item = config[key]
        except InterpolationResolutionError as error:
            yield (*keys, key), error
            continue
        if isinstance(item, DictConfig | ListConfig) and not OmegaConf.is_interpolation(config, key):
            yield from _unresolvable(item, (*keys, key))


def _reason(error: InterpolationResolutionError, tree: dict[str, Any]) -> str:
    reason = str(error).splitlines()[0]
    unknown = re.fullmatch(r"Interpolation key '(.+)' not found", reason)
    return f"there is no {unknown[1]}{did_you_mean(unknown[1], map(str, tree))}" if unknown else reason
