"""How a core suite's module says that the product refused the input."""


class Refused(Exception):
    """The product refused with a message for the user, instead of answering.

    Args:
        message: the text the user reads.
        status: HTTP status that a model engine answered with, where it is passed on.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
