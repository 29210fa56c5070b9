"""NLTK's word lists, which games of words ask for when they are imported and when they are made.

Each time the library asks a server, also for what is there, and waits for minutes: without a connection a worker would
stand still, and all its games with it.
"""

from __future__ import annotations

import importlib
from typing import Any

WAIT_S = 10.0  # for an answer of the server with the data
_PLACES = {"words": "corpora/words", "averaged_perceptron_tagger_eng": "taggers/averaged_perceptron_tagger_eng"}


class WordData:
    """Stands in for `nltk.download`: asks for what is missing, once, and not for long."""

    def __init__(self) -> None:
        self._missing: dict[str, str] = {}  # why
        self._nltk: Any = None
        self._download: Any = None

    def install(self) -> None:
        """Make all games of this process use it."""
        if self._nltk is None:
            downloader: Any = importlib.import_module("nltk.downloader")
            downloader.NETWORK_TIMEOUT = WAIT_S
            self._nltk = importlib.import_module("nltk")
            self._download, self._nltk.download = self._nltk.download, self.download

    def download(self, wanted: str | list[str], *_: Any, **__: Any) -> bool:
        """Return whether data is there, if need be after one try to download it."""
        return all(self._has(name) for name in ([wanted] if isinstance(wanted, str) else wanted))

    @property
    def missing(self) -> str:
        """What could not be downloaded, and why; empty if nothing is missing."""
        return "; ".join(f"{name}: {reason}" for name, reason in self._missing.items())

    def _has(self, name: str) -> bool:
        if name in self._missing:
            return False
        try:
            self._nltk.data.find(_PLACES.get(name, name))
        except LookupError:
            try:
                self._download(name, quiet=True, raise_on_error=True)
            except Exception as error:  # of a library that raises what it likes
                self._missing[name] = " ".join(str(error).split()) or type(error).__name__
                return False
        return True


word_data = WordData()
