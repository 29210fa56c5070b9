"""Areas of plane shapes."""

import math


def circle_area(diameter: float) -> float:
    """Area of a circle of that diameter."""
    return math.pi * diameter**2


def square_area(side: float) -> float:
    """Area of a square."""
    return side * side
