"""The exception of the configuration, and helpers for its messages."""

from collections.abc import Sequence

from gymq.errors import GymqError, did_you_mean

Keys = tuple[str | int, ...]
"""Keys and list indices from the root of a configuration to a value. Other keys of YAML occur in messages only."""


class ConfigError(GymqError):
    """The configuration cannot be used. The text is one line for its author."""


class UnknownInstances(ConfigError):
    """Options name instances that are not configured.

    Attributes:
        names: their names.
    """

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        """Join problems, each given with the unknown name, to one message."""
        super().__init__("; ".join(problem for _, problem in problems))
        self.names = frozenset(name for name, _ in problems)


def first_line(error: Exception) -> str:
    """Return the first line of an error of OmegaConf or YAML, whose further lines repeat key and type."""
    return str(error).splitlines()[0]


def dotted(path: Keys) -> str:
    """Return a path as text: `agent.tools[0].name`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if text else str(key)
    return text


def choices(name: str, known: Sequence[str]) -> str:
    """Return the suggestion of `did_you_mean`, else all known names."""
    return did_you_mean(name, known) or f"; there are: {', '.join(known) or 'none'}"
