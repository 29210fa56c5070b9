"""The errors of the embedded server."""

from gymq.errors import GymqError


class ServerError(GymqError):
    """The server cannot be started, found or stopped. The message is for the user: what is wrong and what to do."""


class StoreInUseError(ServerError):
    """Another process owns the store."""


class PortTakenError(ServerError):
    """Another program listens on `port`."""

    def __init__(self, port: int) -> None:
        super().__init__(f"Port {port} of this machine is taken by another program: stop that program.")
        self.port = port
