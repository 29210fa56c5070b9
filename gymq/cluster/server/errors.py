"""The errors of the embedded server."""

from gymq.errors import UsageError


class StoreInUseError(UsageError):
    """Another process owns the store."""


class PortTakenError(UsageError):
    """Another program listens on `port`."""

    def __init__(self, port: int) -> None:
        super().__init__(f"Port {port} of this machine is taken by another program: stop that program.")
        self.port = port
