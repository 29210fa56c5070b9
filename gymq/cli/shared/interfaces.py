"""What a configuration starts beside a cluster: the entry points `gymq.interfaces` that its keys name."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, cast

from gymq.config import Config
from gymq.extensions import extensions


class InterfaceAddress(Protocol):
    """Where an interface listens; its text is a line to print."""

    @property
    def viewer_url(self) -> str:
        """What to open in a browser."""


class Interface(Protocol):
    """A module that serves a cluster."""

    def check(self, config: Config) -> Any:
        """Check its part of the configuration.

        Raises:
            UsageError: a setting is invalid.
        """

    def serve(self, config: Config, url: str, logs_folder: Path) -> AbstractAsyncContextManager[InterfaceAddress]:
        """Serve the cluster while the block runs."""


def interfaces(config: Config) -> list[Interface]:
    """Return the interfaces that a configuration asks for: those with a mapping of their name at its top."""
    return [
        cast(Interface, found.load()) for found in extensions("interfaces") if config.tree.get(found.name) is not None
    ]
