"""Which versions of the protocol a process speaks, and whether those of two processes meet."""

from __future__ import annotations

from typing import Annotated

import msgspec

Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class ProtocolRange(msgspec.Struct, frozen=True, rename=lambda name: f"protocol_{name}"):
    """The oldest and the newest version of the protocol that a process speaks; it states them as it encodes them."""

    oldest: Number = 0  # of a process that states none
    newest: Number = 0

    def meets(self, other: ProtocolRange) -> bool:
        """Return whether there is a version that both speak."""
        return self.oldest <= other.newest and other.oldest <= self.newest

    def stated(self) -> dict[str, str]:
        """Return it as metadata of a service, whose values are text."""
        return {name: str(value) for name, value in msgspec.to_builtins(self).items()}

    @classmethod
    def read(cls, metadata: dict[str, str]) -> ProtocolRange:
        """Return what a process states in its metadata."""
        try:
            return msgspec.convert(metadata, cls, strict=False)
        except msgspec.ValidationError:
            return cls()

    def __str__(self) -> str:
        return f"protocol {self.oldest} to {self.newest}"


# A field that can be left out needs no new version: who does not know it skips it. `newest` grows with what a process
# of the version before could not handle, and `oldest` when support for a version ends.
SPOKEN = ProtocolRange(oldest=1, newest=1)
