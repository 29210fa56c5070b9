"""Unused top-level keys: typing errors, and settings of NeMo Gym that have no meaning here."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from omegaconf import OmegaConf

from gymq.config.errors import ConfigError
from gymq.config.instances import lacks_entrypoint
from gymq.config.loader import DIRECTIVES, ENV_YAML, USUAL_VALUES, Config
from gymq.config.process_settings import SETTINGS, check_settings
from gymq.config.sampling import check_sampling
from gymq.config.schema import RUN_KEYS
from gymq.config.sources import OVERRIDE, Source, origin
from gymq.data.rows import PARAMS
from gymq.errors import did_you_mean
from gymq.protocol.instances import KIND_OF
from gymq.responses.params import KNOWN

CONCURRENCY = "num_samples_in_parallel"

OWN_KEYS = frozenset({"bridge", PARAMS, CONCURRENCY}) | SETTINGS
"""Further keys that are in effect, in addition to `RUN_KEYS`."""

OPTIONS_INSTEAD = {
    "agent_name": "--agent",
    "input_jsonl_fpath": "--rows",
    "limit": "--limit",
    "num_repeats": "--num-repeats",
    "num_repeats_add_seed": "--num-repeats-add-seed",
    "output_jsonl_fpath": "--output",
    "prompt_config": "--prompt-config",
}
"""Settings of NeMo Gym's collection, and the options of `gymq collect` that replace them."""

WITHOUT_MEANING = frozenset(
    {
        "disable_aggregation",
        "global_aiohttp_client_request_debug",
        "global_aiohttp_connector_limit",
        "global_aiohttp_connector_limit_per_host",
        "head_server_deps",
        "hf_token",
        "mlflow_experiment_name",
        "mlflow_run_name",
        "mlflow_tracking_token",
        "mlflow_tracking_uri",
        "model_call_capture_dir",
        "nemo_gym_log_dir",
        "pip_install_verbose",
        "python_version",
        "resume_from_cache",
        "rollout_collection_driver",
        "skills",
        "skip_venv_if_present",
        "upload_rollouts",
        "uv_cache_dir",
        "uv_pip_set_python",
        "uv_venv_dir",
        "uvicorn_logging_show_200_ok",
        "verbose",
        "wandb_api_key",
        "wandb_name",
        "wandb_project",
    }
)
"""Settings of NeMo Gym's servers without a counterpart here."""

_OF_HEAD_SERVER = ("host", "port")
_BETWEEN_NAMES = re.compile(r"[\s${}:,.\[\]]+")


def check_keys(config: Config) -> list[str]:
    """Check the keys of a configuration that belong to no worker.

    A top-level key has to describe a worker, configure the run, be referred to by something, or come from env.yaml,
    whose values are for more than one configuration.

    Returns:
        One sentence for each setting that has no meaning here.

    Raises:
        ConfigError: keys are unknown; it names each, its place and a similar known key.
    """
    warnings: list[str] = []
    problems: list[str] = []
    referred = _referred(config.sources)
    instances = {found.name for found in config.instances}
    known = sorted(RUN_KEYS | OWN_KEYS | USUAL_VALUES | instances)
    for name, value in config.tree.items():
        if name in instances:
            problems += _unknown_kinds(config, name, value)
            continue
        if name in RUN_KEYS or name in OWN_KEYS or name in USUAL_VALUES or str(name) in referred:
            continue
        if value is None:
            continue  # null removes the value of another source
        places = [found for source in config.sources if (found := source.place_of((name,)))]
        where = places[-1] if places else "configuration"
        is_override = all(found.startswith(OVERRIDE) for found in places)
        if name in OPTIONS_INSTEAD and is_override:
            problems.append(f"{where}: {name} is an option of `gymq collect` here: {OPTIONS_INSTEAD[name]}")
        elif name in OPTIONS_INSTEAD:
            warnings.append(f"{name} has no meaning here and is ignored; use {OPTIONS_INSTEAD[name]}")
        elif name in WITHOUT_MEANING:
            warnings.append(f"{name} has no meaning here and is ignored")
        elif isinstance(value, dict) and not value.keys().isdisjoint(KIND_OF) and not is_override:
            if lacks_entrypoint(value):  # otherwise it was skipped because it is not valid
                warnings.append(f"{where}: {name} has no `entrypoint`, so it describes no worker and is ignored")
        elif not any(PurePath(one.name).name == ENV_YAML and one.place_of((name,)) for one in config.sources):
            meant = did_you_mean(str(name), known)
            if isinstance(value, dict) and not is_override and not meant:
                warnings.append(f"{where}: nothing refers to {name}, so it is ignored")
                continue
            hint = meant or _other_hint(str(name))
            problems.append(f"{where}: no key {name} is known and nothing refers to it{hint}")
    problems += _unknown_in_head_server(config)
    for name in ("head_server", PARAMS):
        if not isinstance(value := config.tree.get(name), dict | None):
            problems.append(f"{origin(config.sources, (name,))}: {name}: must be a mapping, not {value!r}")
    if problems:
        raise ConfigError("; ".join(problems))
    check_sampling(config.tree.get(PARAMS) or {})
    check_settings(config.tree)
    return warnings


def _other_hint(name: str) -> str:
    """Return a hint for a key that resembles no other: an option, or a sampling parameter."""
    if instead := get_close_matches(name, sorted(OPTIONS_INSTEAD), n=1):
        return f"; did you mean {OPTIONS_INSTEAD[instead[0]]}, an option of `gymq collect`?"
    close = get_close_matches(name, sorted(KNOWN), n=1)
    return f"; did you mean {PARAMS}.{close[0]}?" if close else "; values that are rarely used belong in env.yaml"


def _unknown_kinds(config: Config, name: str, block: dict[str, Any]) -> Iterator[str]:
    """Yield a message for each key of an instance other than its kind."""
    for key in block:
        if key not in KIND_OF:
            where = origin(config.sources, (name, key))
            yield f"{where}: {name}: no key {key}; an instance has one of {', '.join(KIND_OF)}"


def _unknown_in_head_server(config: Config) -> Iterator[str]:
    given = config.tree.get("head_server")
    for key in given if isinstance(given, dict) else ():
        if key not in _OF_HEAD_SERVER:
            where = origin(config.sources, ("head_server", key))
            yield f"{where}: head_server: no setting {key}{did_you_mean(str(key), _OF_HEAD_SERVER)}"


def _referred(sources: Sequence[Source]) -> set[str]:
    """Return the words of all interpolations and directives, which include all referenced names."""
    words: set[str] = set()
    pending: list[Any] = [OmegaConf.to_container(source.config, resolve=False) for source in sources]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
            named = [value[key] for key in DIRECTIVES & value.keys()]
            words.update(word for text in named for word in _BETWEEN_NAMES.split(str(text)))
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str) and "${" in value:
            words.update(_BETWEEN_NAMES.split(value))
    return words
