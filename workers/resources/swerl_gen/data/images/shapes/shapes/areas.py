"""Areas."""

import math


def circle(radius):
    return math.pi * radius


def square(side):
    return side * side
