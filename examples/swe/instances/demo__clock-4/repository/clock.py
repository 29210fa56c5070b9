"""Times of day as text."""


def minutes(time: str) -> int:
    """Minutes since midnight of a time such as 09:05."""
    hours, _, rest = time.partition(":")
    return 60 * int(hours) + int(rest)


def minutes_between(start: str, end: str) -> int:
    """How long it takes from a time to the next such time."""
    return minutes(end) - minutes(start)
