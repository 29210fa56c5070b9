"""Token ids as the texts that they stand for, by the tokenizer of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymq.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE = "tokenizer.json"


class TokenTexts:
    """Turns ids into texts."""

    def __init__(self, path: Path) -> None:
        """Read a tokenizer.

        Args:
            path: a `tokenizer.json` as models of Hugging Face have it, or the folder with it.

        Raises:
            UsageError: it cannot be read, or the library is not installed.
        """
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UsageError("showing tokens as text needs tokenizers: pip install 'gymq[viewer]'") from None
        file = path / FILE if path.is_dir() else path
        if not file.is_file():
            raise UsageError(f"{file}: there is no such file; expected {FILE} of a model, or the folder with it")
        try:
            self._tokenizer: Tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing more specific
            raise UsageError(f"{file} is not a tokenizer that can be read: {error}") from None

    def texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text that each id adds; empty for one whose character ends in a later one, or that is unknown."""
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=False)
        return [self._text(stream, one) for one in ids]

    def _text(self, stream: object, one: int) -> str:
        try:
            return stream.step(self._tokenizer, one) or ""  # type: ignore[attr-defined]
        except Exception:  # ids that do not fit together: the page shows their numbers
            return ""
