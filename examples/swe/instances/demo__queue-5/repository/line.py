"""A waiting line."""


class Line:
    """First come, first served."""

    def __init__(self) -> None:
        self._waiting: list[str] = []

    def put(self, name: str) -> None:
        """Join at the end."""
        self._waiting.append(name)

    def take(self) -> str:
        """Who is next."""
        return self._waiting.pop()

    def __len__(self) -> int:
        return len(self._waiting)
