"""The configuration of a command: read from files, endpoints and options, and checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymq.authoring import OptionsError
from gymq.cli.shared.interfaces import interfaces
from gymq.cli.shared.parameters import WorkerSources
from gymq.config import Config, Instance, load
from gymq.config.assembled import (
    POLICY,
    POLICY_KEYS,
    SIMULATED_MODEL,
    endpoint,
    environment,
    first_set,
    load_with_policy,
    policy_values,
)
from gymq.config.benchmarks import find_benchmark
from gymq.config.errors import ConfigError
from gymq.config.overrides import Override, from_option
from gymq.config.sources import INITIAL, origin
from gymq.config.unknown import check_keys
from gymq.data.prompt import RowPrompt
from gymq.errors import UsageError, did_you_mean
from gymq.execution.loading.building import build
from gymq.execution.loading.registry import WorkerNotFound, find_class
from gymq.execution.loading.worker_options import implied_overrides, model_options, published_rules
from gymq.execution.loading.worker_source import instance_name
from gymq.render import say
from gymq.resources import Resources
from gymq.workers import SHIPPED

JUDGE = "judge"
JUDGE_IN_CONFIG = "a configuration (--config) names another"
"""How commands without --judge-url name another judge than the policy."""
_DIALECT = f"{POLICY}.responses_api_models.openai_model.dialect"


def read_config(
    sources: WorkerSources,
    overrides: Sequence[str],
    *,
    with_agent: bool = True,
    with_judges: bool = True,
    judge_hint: str = "--judge-url URL --judge-model NAME names another",
    check: bool = True,
    needs_policy: bool = True,
) -> Config:
    """Read the configuration a command was given: files, a file with a verifier, endpoints for policy and judge.

    Settings that have no meaning here are named on standard error.

    Args:
        with_agent: whether the Python file is given the agent that its class names.
        with_judges: whether the judge, or the policy without one, is named to the environments that need it, and what
            the configuration implies is added; the code of workers is imported for this.
        judge_hint: how the command names another judge than the policy.
        check: whether keys that nothing reads are refused, and a policy that was added is reported.
        needs_policy: whether a configuration without a policy is refused.
    """
    _check_sources(sources)
    initial, added = _given(sources, overrides, with_agent=with_agent)
    files = [str(path) for path in sources.config]
    roots: list[Path] = []
    if sources.benchmark is not None:
        benchmark = find_benchmark(sources.benchmark, sources.search_dir)
        files, roots = [str(benchmark.config.absolute()), *files], [benchmark.root.absolute()]
    if sources.resources is not None or sources.benchmark is not None or not needs_policy:
        settings, simulated = load_with_policy(files, added, initial=initial, roots=roots)
        initial |= simulated
        if simulated and check:
            say(f"no policy is given (--model-url, --model), so {SIMULATED_MODEL} is used")
    else:
        settings = _load(files, added)
    num_given = len(added)
    if with_judges:
        judges = _judges(settings, given=sources.judge_url is not None, hint=judge_hint)
        published = {} if sources.benchmark is None else published_rules(settings)
        if published and check:
            say(f"{', '.join(published)}: judged as published (`hardened: false`), so that figures compare")
        added += [*judges, *implied_overrides(settings), *published.values()]
        if len(added) > num_given:
            settings = load(files, added, initial=initial, extra_roots=roots)
    if check:
        for warning in check_keys(settings):
            say(f"{warning}")
        for interface in interfaces(settings):
            interface.check(settings)
    return settings


def _given(
    sources: WorkerSources, overrides: Sequence[str], *, with_agent: bool
) -> tuple[dict[str, Any], list[str | Override]]:
    """Return the environment of a Python file, and the overrides, those of options before those that were written."""
    initial: dict[str, Any] = {}
    added: list[str | Override] = list(overrides)
    if sources.dialect is not None:
        added = [*added, from_option("--dialect", f"++{_DIALECT}={sources.dialect}")]
    if sources.resources is not None:
        name, file = instance_name(sources.resources), str(sources.resources.resolve())
        agent = _played_by(file) if with_agent else None
        initial |= environment(name, file, {"entrypoint": sources.resources.name}, agent=agent)
        added = [*_options_of(name, sources.option), *added]
    if sources.judge_url is not None:
        keys = ("GYMQ_JUDGE_API_KEY", *POLICY_KEYS)
        judge = _endpoint("--judge-url", JUDGE, sources.judge_url, str(sources.judge_model), first_set(keys))
        added = [*judge, *added]
    if sources.model_url is not None:
        added = [*_policy_at(sources.model_url, str(sources.model)), *added]
    return initial, added


def verifiers_of(sources: WorkerSources, settings: Config) -> list[str]:
    """Return the options that name the same verifiers to `gymq score`."""
    if sources.resources is not None:
        return ["--resources", str(sources.resources)]
    files, published = list(sources.config), list[str]()
    if sources.benchmark is not None:
        files.append(find_benchmark(sources.benchmark, sources.search_dir).config)
        published = list(published_rules(settings).values())
    return [*(word for file in files for word in ("--config", str(file))), *published]


def _played_by(file: str) -> str:
    """Return the agent that plays the environment in a file."""
    try:
        return find_class("resources", file).played_by
    except WorkerNotFound:
        return Resources.played_by  # what is wrong with the file is said when its instance is checked


def _load(files: Sequence[str], overrides: Sequence[str | Override]) -> Config:
    """Load a configuration.

    Raises:
        ConfigError: it is wrong; where it lacks the policy, the message says how to add one.
    """
    try:
        return load(files, overrides)
    except ConfigError as error:
        if POLICY not in error.unknown:
            raise
        added = f"--config workers/models/{SIMULATED_MODEL}/config.yaml adds a simulated one"
        raise ConfigError(f"{error}; --model-url and --model add {POLICY}, {added}") from None


def _check_sources(given: WorkerSources) -> None:
    if given.resources is not None and not Path(str(given.resources).partition(":")[0]).is_file():
        files = [folder / "config.yaml" for folder in (given.resources, Path("workers", "resources", given.resources))]
        found = next((file for file in files if file.is_file() or (SHIPPED / file).is_file()), None)
        hint = "" if found is None else f"; for an environment with a configuration give --config {found}"
        raise UsageError(f"--resources {given.resources}: file not found{hint}")
    if given.model_url is not None and given.model is None:
        raise UsageError("--model-url needs --model, the name the endpoint knows the model by")
    if given.model is not None and given.model_url is None:
        raise UsageError("--model needs --model-url, the endpoint that serves the model")
    if given.dialect is not None and given.model_url is None:
        raise UsageError(f"--dialect needs --model-url; in a configuration it is the option {_DIALECT}")
    if given.judge_url is not None and given.judge_model is None:
        raise UsageError("--judge-url needs --judge-model, the name the endpoint knows the model by")
    if given.judge_model is not None and given.judge_url is None:
        raise UsageError("--judge-model needs --judge-url, the endpoint that serves the model")
    if given.option and given.resources is None:
        raise UsageError(
            "--option needs --resources FILE.py, whose worker has the option; otherwise write INSTANCE.KEY=VALUE"
        )
    for setting in given.option:
        if "=" not in setting:
            raise UsageError(f"--option {setting}: write KEY=VALUE")


def _judges(config: Config, *, given: bool, hint: str) -> list[str]:
    """Return overrides that name the judge of each environment that needs one.

    Args:
        given: whether there is one to name; if not, the policy is named where a judge is required.
        hint: how to name another judge then.
    """
    options = list(model_options(config))
    if given:
        if not options:
            check_instances(config)  # what cannot be loaded has no such option either
            raise UsageError("--judge-url: no environment of this configuration has an option that names a judge")
        return [option.override(JUDGE) for option in options if option.model in (None, POLICY)]
    if all(found.name != POLICY for found in config.instances):
        return []
    needed = [option for option in options if option.is_required and option.model is None]
    for option in needed:
        say(f"{option.instance.name}.{option.name} is not set, so {POLICY} judges; {hint}")
    return [option.override(POLICY) for option in needed]


def check_instances(config: Config) -> None:
    """Check that a configuration has workers, and that each exists and accepts its options."""
    require_instances(config)
    for found in config.instances:
        check_instance(config, found)


def require_instances(config: Config) -> None:
    """Check that a configuration has workers."""
    if not config.instances:
        raise UsageError("the configuration describes no workers: give --config FILE or --resources FILE.py")


def check_instance(config: Config, found: Instance) -> None:
    """Check that the worker of an instance exists and accepts its options.

    Options that its worker drops are named on standard error.
    """
    try:
        worker = build(found)
    except OptionsError as error:
        raise OptionsError(_placed(config, found, error, *error.path), error.path) from None
    except WorkerNotFound as error:
        raise WorkerNotFound(_no_such_file(config, found) or _placed(config, found, error)) from None
    options = worker.Options
    for name in sorted(options.ignored(found.options)):
        hint = "" if name in options.without_meaning else did_you_mean(name, options.model_fields)
        say(f"{found.name}: {name} has no meaning here and is ignored{hint}")


def _placed(config: Config, found: Instance, error: Exception, *path: str | int) -> str:
    """Return an error about an instance, after the place in the configuration that causes it."""
    where = origin(config.sources, (found.name, found.server_type, found.implementation, *path))
    return str(error) if where in (None, INITIAL) else f"{where}: {error}"


def _no_such_file(config: Config, found: Instance) -> str | None:
    """Return that a worker's file is neither beside its configuration nor here; None if that is not the problem."""
    file = Path(found.implementation.partition(":")[0])
    if file.suffix != ".py" or file.is_absolute() or file.is_file():
        return None
    keys = (found.name, found.server_type, found.implementation)
    folders = [source.folder for source in config.sources if source.folder is not None and source.place_of(keys)]
    places = " nor in ".join(dict.fromkeys(str(folder) for folder in [*folders, Path.cwd()]))
    return f"{origin(config.sources, keys)}: file {file} not found: neither in {places}" if folders else None


def _options_of(instance: str, settings: Sequence[str]) -> list[Override]:
    return [from_option(f"--option {one.partition('=')[0]}", f"++{instance}.{one}") for one in settings]


def _policy_at(url: str, model: str) -> list[Override]:
    """Return overrides that put an endpoint in the place of whatever policy the files name."""
    option, key = "--model-url", first_set(POLICY_KEYS)
    values = policy_values({"openai_base_url": url, "openai_api_key": key, "openai_model": model})
    given = [from_option(option, f"++{name}={json.dumps(value)}") for name, value in values.items()]
    return [*given, *_endpoint(option, POLICY, url, model, key)]


def _endpoint(option: str, name: str, url: str, model: str, key: str) -> list[Override]:
    """Return overrides that make an instance ask an endpoint, whatever it was before."""
    asked = json.dumps(endpoint(url, model, key))
    return [from_option(option, f"++{name}=null"), from_option(option, f"++{name}={asked}")]


def read_prompt(file: Path) -> RowPrompt:
    """Return the prompt of a file.

    Raises:
        UsageError: it cannot be used; says why.
    """
    try:
        return RowPrompt.from_yaml(file.read_text("utf-8"), str(file))
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise UsageError(str(error)) from None
