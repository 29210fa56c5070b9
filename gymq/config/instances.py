"""Finding and checking the instances among the top-level mappings of a configuration."""

from collections.abc import Iterator, Sequence
from typing import Any

from gymq.config.errors import ConfigError, Keys, choices, dotted
from gymq.config.schema import RUN_KEYS, Implementation, problems
from gymq.config.sources import Source, place
from gymq.protocol.instances import KIND_OF, Instance


def worker_options(instance: Instance) -> dict[str, Any]:
    """Return an instance's options without the keys that every implementation can have in the format."""
    return {key: value for key, value in instance.options.items() if key not in Implementation.model_fields}


def find_instances(tree: dict[str, Any], sources: Sequence[Source] = ()) -> tuple[list[Instance], list[str]]:
    """Return the instances of a resolved configuration in order of appearance.

    A mapping without a server type, or without an `entrypoint` below it, is neither an instance nor a mistake.

    Args:
        tree: the resolved configuration.
        sources: its layers, to name lines in messages.

    Returns:
        The instances, and one message for each mapping that has an `entrypoint` but is not valid.
    """
    instances: list[Instance] = []
    invalid: list[str] = []
    for name, block in tree.items():
        types = [key for key in KIND_OF if isinstance(block, dict) and key in block]
        if not any(_has_entrypoint(block[key]) for key in types):
            continue
        block_problems = list(_problems(name, block, types))
        if block_problems:
            located = (f"{dotted(keys)}: {problem}{place(sources, keys)}" for keys, problem in block_problems)
            invalid.append("; ".join(located))
        else:
            ((implementation, options),) = block[types[0]].items()
            instances.append(Instance(name, KIND_OF[types[0]], implementation, options))
    return instances, invalid


def lacks_entrypoint(block: Any) -> bool:
    """Return whether a block of a configuration only lacks an `entrypoint` to be an instance."""
    types = [key for key in KIND_OF if isinstance(block, dict) and key in block]
    return bool(types) and not any(_has_entrypoint(block[key]) for key in types)


def _has_entrypoint(implementations: Any) -> bool:
    return isinstance(implementations, dict) and any(
        isinstance(options, dict) and "entrypoint" in options for options in implementations.values()
    )


def _problems(name: Any, block: dict[str, Any], types: list[str]) -> Iterator[tuple[Keys, str]]:
    """Yield the problems of a mapping that has an entrypoint, each with its path."""
    if not isinstance(name, str):
        yield (str(name),), "an instance needs a name that is text, not a number"
    elif name in RUN_KEYS:
        yield (name,), "the key configures the run and cannot name an instance"
    if len(types) > 1:
        yield (name,), f"more than one server type: {', '.join(types)}"
        return
    server_type = types[0]
    if len(block[server_type]) != 1:
        names = ", ".join(map(str, block[server_type]))
        yield (name, server_type), f"must hold exactly one implementation, not {names}"
        return
    ((implementation, options),) = block[server_type].items()
    keys = (name, server_type, str(implementation))
    if not isinstance(implementation, str):
        yield keys, "an implementation needs a name that is text, not a number"
    for field, problem in problems(Implementation, options):
        yield (*keys, *field), problem
    if server_type == "resources_servers" and isinstance(options, dict) and options.get("domain") is None:
        yield (*keys, "domain"), "missing; a resources server needs one"


def check_references(tree: dict[str, Any], instances: Sequence[Instance], sources: Sequence[Source] = ()) -> None:
    """Check that each option `{type: ..., name: ...}` in a resolved configuration names an instance of that type.

    Raises:
        ConfigError: an option names an unknown instance.
    """
    problems: list[tuple[str, str]] = []
    configured = {(instance.server_type, instance.name) for instance in instances}
    for instance in instances:
        for field, value in instance.options.items():
            server_type, name = (value.get("type"), value.get("name")) if isinstance(value, dict) else (None, None)
            if not isinstance(server_type, str) or server_type not in KIND_OF or not isinstance(name, str):
                continue
            if (server_type, name) in configured:
                continue
            candidates = [other.name for other in instances if other.server_type == server_type]
            keys = (instance.name, instance.server_type, instance.implementation, field, "name")
            hint = choices(name, candidates)
            elsewhere = next((other.server_type for other in instances if other.name == name), None)
            if elsewhere:
                hint = f"; {name} is one of the {elsewhere}"
            if lacks_entrypoint(tree.get(name)):
                hint = f"; the block {name} has no `entrypoint`"
            problem = f"{dotted(keys)}: no {server_type} are called {name}{hint}{place(sources, keys)}"
            problems.append((name, problem))
    if problems:
        raise ConfigError("; ".join(problem for _, problem in problems), {name for name, _ in problems})
