"""The exception of the configuration, and helpers for its messages."""

from collections.abc import Collection, Sequence

from gymq.errors import GymqError, did_you_mean

Keys = tuple[str | int, ...]
"""Keys and list indices from the root of a configuration to a value. Other keys of YAML occur in messages only."""


class ConfigError(GymqError):
    """The configuration cannot be used. The text is one line for its author.

    Attributes:
        unknown: names of instances that options refer to and that are not configured, if that is what is wrong.
    """

    def __init__(self, problem: str, unknown: Collection[str] = ()) -> None:
        super().__init__(problem)
        self.unknown = unknown


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
