"""The one exception of the configuration, and how its messages name things."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from gymq.errors import GymqError

Keys = tuple[str | int, ...]
"""Keys and list indices from the root of a configuration to one of its values. YAML also has other keys; they are rare
and only written out."""


class ConfigError(GymqError):
    """The configuration cannot be used. The text is one line for its author."""


class UnknownInstances(ConfigError):
    """Options name instances that are not configured.

    Attributes:
        names: their names.
    """

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        """Join what is wrong, given with the name that is unknown, to one message."""
        super().__init__("; ".join(problem for _, problem in problems))
        self.names = frozenset(name for name, _ in problems)


def dotted(path: Keys) -> str:
    """Write a path the way people write it: `agent.tools[0].name`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if text else str(key)
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean a or b?` for the known names close to `name`, or nothing."""
    close = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def choices(name: str, known: Sequence[str]) -> str:
    """Return what `did_you_mean` returns, or else all the known names."""
    return did_you_mean(name, known) or f"; there are: {', '.join(known) or 'none'}"
