"""An account as a list of bookings."""


def balance(bookings: list[int]) -> int:
    """Sum of all bookings, in cents."""
    total = None
    for booking in bookings:
        total = booking if total is None else total + booking
    return total
