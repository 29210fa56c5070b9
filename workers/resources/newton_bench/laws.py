"""The altered laws of NewtonBench (https://github.com/HKUST-KnowComp/NewtonBench), as formulas, with their ranges."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gymq.workers.resources.newton_bench.formula import compiled

DIFFICULTIES = ("easy", "medium", "hard")
VERSIONS = ("v0", "v1", "v2")

Values = Mapping[str, float]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a law, and the range from which points are drawn."""

    meaning: str
    low: float
    high: float
    argument: str = ""  # of the experiment; default: the same name
    default: float | None = None  # of the experiment; None: it has to be given
    log: bool = True  # uniform in the logarithm, otherwise in the value

    def draw(self, source: random.Random) -> float:
        if self.log:
            return math.exp(source.uniform(math.log(self.low), math.log(self.high)))
        return source.uniform(self.low, self.high)


@dataclass(frozen=True)
class Module:
    """One law of physics, altered in nine ways."""

    name: str
    result: str  # what is measured
    parameters: dict[str, Parameter]
    formulas: str  # one a line: of the first version by difficulty, then of the next
    other_arguments: tuple[str, ...] = ()  # of experiments with other systems
    is_zero: Callable[[Values], bool] = lambda values: False
    is_undefined: Callable[[Values], bool] = lambda values: False
    must_be_positive: bool = False

    def formula(self, difficulty: str, version: str) -> str:
        lines = self.formulas.split("\n")[1:]
        return lines[len(DIFFICULTIES) * VERSIONS.index(version) + DIFFICULTIES.index(difficulty)].strip()

    def law(self, difficulty: str, version: str) -> Callable[[Values], float]:
        """Return the law as a function; NaN where it is not defined."""
        function = compiled(self.formula(difficulty, version))

        def value_at(values: Values) -> float:
            if self.is_zero(values):
                return 0.0
            if self.is_undefined(values):
                return math.nan
            value = function(values)
            return math.nan if self.must_be_positive and not value > 0 else value

        return value_at

    def points(self, count: int) -> list[dict[str, float]]:
        """Points at random, the same each time."""
        source = random.Random(self.name)
        return [{name: parameter.draw(source) for name, parameter in self.parameters.items()} for _ in range(count)]


def _any_not_positive(values: Values) -> bool:
    return any(value <= 0 for value in values.values())


MODULES = {
    module.name: module
    for module in (
        Module(
            "m0_gravity",
            "force",
            {
                "mass1": Parameter("first mass", 1, 1e3),
                "mass2": Parameter("second mass", 1, 1e3),
                "distance": Parameter("distance", 1, 10),
            },
            """
            6.674e-05 * mass1 * mass2 / distance ** 1.5
            6.674e-05 * (mass1 * mass2) ** 2 / distance ** 1.5
            6.674e-05 * (mass1 + mass2) ** 2 / distance ** 1.5
            6.674e-05 * mass1 / distance ** 2
            6.674e-05 * mass1 / distance ** 2.6
            6.674e-05 * mass1 ** 1.3 / distance ** 2.6
            6.674e-05 * mass1 ** 2 * mass2 ** 2 / distance ** 2
            6.674e-05 * mass1 ** 2 * mass2 ** 2 * distance ** 2
            6.674e-05 * (mass1 ** 2 + mass2 ** 2) * distance ** 2
            """,
            ("initial_velocity", "duration", "time_step"),
            _any_not_positive,
        ),
        Module(
            "m1_coulomb_force",
            "force",
            {
                "q1": Parameter("first charge", 0.1, 10),
                "q2": Parameter("second charge", 0.1, 10),
                "distance": Parameter("distance", 0.1, 10),
            },
            """
            2 * q1 * q2 / distance ** 3
            2 * q1 * q2 * (q1 + q2) / distance ** 2
            2 * q1 * q2 * (q1 + q2) / distance ** e
            2 * (q1 * q2) ** 3 / distance ** 2
            2 * (q1 + q2) ** 3 / distance ** 2
            2 * q2 ** 2 * (q1 + q2) ** 3 / distance ** 2
            2 * q1 ** 3 * q2 / distance ** 2
            2 * q1 ** 3 * q2 ** 2 / distance ** 2.5
            2 * q1 ** 3 * q2 ** 2 / distance ** e
            """,
            ("m1", "m2", "duration", "time_step"),
            lambda values: values["distance"] <= 0 or values["q1"] == 0 or values["q2"] == 0,
        ),
        Module(
            "m2_magnetic_force",
            "force",
            {
                "current1": Parameter("first current", 1e-3, 0.1),
                "current2": Parameter("second current", 1e-3, 0.1),
                "distance": Parameter("distance", 1e-3, 0.1),
            },
            """
            0.0478 * current1 * current2 / distance ** 3
            0.0478 * (current1 * current2) ** 1.5 / distance ** 3
            0.0478 * (current1 + current2) ** 1.5 / distance ** 3
            0.0478 * (current1 * current2) ** 2 / distance
            0.0478 * (current1 * current2) ** 2 * distance
            0.0478 * (current1 - current2) ** 2 * distance
            0.0478 * current2 / distance
            0.0478 * current2 / distance ** 3.8
            0.0478 * current2 ** 0.9 / distance ** 3.8
            """,
            ("mass_wire", "initial_velocity", "duration", "time_step"),
            lambda values: values["distance"] <= 0 or values["current1"] == 0 or values["current2"] == 0,
        ),
        Module(
            "m3_fourier_law",
            "heat flow",
            {
                "k": Parameter("conductivity", 0.1, 10),
                "A": Parameter("area", 1e-4, 1e-2),
                "delta_T": Parameter("temperature difference", 10, 1e3),
                "d": Parameter("thickness", 0.01, 1),
            },
            """
            k * A * delta_T / d ** 2
            k * A ** 0.5 * delta_T / d ** 2
            k * A ** 0.5 * delta_T ** 1.3 / d ** 2
            k * A ** 0.5 * delta_T / d
            k * A ** 0.5 * delta_T ** 2.7 / d
            k * A ** 0.5 * delta_T ** 2.7 / d ** (3 / 7)
            k * A * delta_T ** 2 / d
            k * delta_T ** 2 / (d * A ** 3.4)
            k * delta_T ** 2 / (d ** 0.5 * A ** 3.4)
            """,
            ("num_points",),
            lambda values: values["d"] <= 0 or values["delta_T"] <= 0,
        ),
        Module(
            "m4_snell_law",
            "angle of refraction in degrees",
            {
                "n1": Parameter("first refractive index", 1, 1.5, "refractive_index_1", 1.1, log=False),
                "n2": Parameter("second refractive index", 1, 1.5, "refractive_index_2", 1.2, log=False),
                "angle1": Parameter("angle of incidence in degrees", 0, 90, "incidence_angle", log=False),
            },
            """
            degrees(acos(n1 * sin(radians(angle1)) / n2))
            degrees(acos(n1 * cos(radians(angle1)) / n2))
            degrees(acos(n1 ** 2 * cos(radians(angle1)) / n2))
            degrees(asin(n2 * sin(radians(angle1)) / n1))
            degrees(acos(n2 * sin(radians(angle1)) / n1))
            degrees(acos(n2 * sin(radians(angle1)) / n1 ** 2.5))
            degrees(atan(n1 * sin(radians(angle1)) / n2))
            degrees(atan(n1 * tan(radians(angle1)) / n2))
            degrees(atan((n1 / n2) ** 2 * tan(radians(angle1))))
            """,
            ("refractive_index_3", "speed_medium1", "speed_medium2"),
        ),
        Module(
            "m5_radioactive_decay",
            "activity",
            {
                "N0": Parameter("initial amount", 1, 100, default=1.0),
                "lambda_constant": Parameter("decay constant", 1e-3, 0.1, default=1.0),
                "t": Parameter("time", 0.01, 10),
            },
            """
            N0 * exp(-lambda_constant * t ** 1.5)
            N0 ** 1.2 * exp(-lambda_constant * t ** 1.5)
            N0 ** 1.2 * exp(-(lambda_constant ** e) * t ** 1.5)
            N0 * exp(-(lambda_constant ** 1.5) * t)
            N0 ** 1.4 * exp(-(lambda_constant ** 1.5) * t)
            N0 ** 1.4 * exp(-(lambda_constant ** 1.5) * t ** e)
            N0 * exp(-((lambda_constant * t) ** 1.5))
            N0 ** 1.8 * exp(-((lambda_constant * t) ** 1.5))
            N0 ** 1.8 * exp(-((lambda_constant * t) ** (e + 1.5)))
            """,
            ("N0a", "N0b", "lambda_a", "lambda_b", "num_points"),
        ),
        Module(
            "m6_underdamped_harmonic",
            "angular frequency",
            {
                "k": Parameter("spring constant", 1e2, 1e4, "k_constant"),
                "m": Parameter("mass", 0.1, 10, "mass"),
                "b": Parameter("damping constant", 0.01, 1, "b_constant"),
            },
            """
            sqrt(k / m - b / (2 * m))
            sqrt(k / m - b / (2 * m ** 2))
            (k / m - b / (2 * m ** 2)) ** 1.5
            (k / m - (b / (2 * m)) ** 2) ** 2
            (k / m ** 2 - (b / (2 * m)) ** 2) ** 2
            (k * m ** 2 - (b / (2 * m)) ** 2) ** 2
            k / m - (b / (2 * m)) ** 2
            k / m ** 1.3 - (b / (2 * m)) ** 2
            k / m ** 1.3 - (b / (2 * m)) ** 0.7
            """,
            ("initial_amplitude",),
        ),
        Module(
            "m7_malus_law",
            "intensity behind the polariser",
            {
                "I_0": Parameter("intensity in front of the polariser", 100, 2000),
                "theta": Parameter("angle in radians", 1e-9, math.pi / 2, log=False),
            },
            """
            I_0 * (sin(theta) + cos(theta)) ** 2
            I_0 * (2 * sin(theta) + cos(theta)) ** 2
            I_0 * (2 * sin(theta) + 1.5 * cos(theta)) ** 2
            I_0 * tan(theta) ** 2
            I_0 * sin(theta) ** 2 / cos(theta) ** 3
            I_0 * (sin(theta) ** 2 / cos(theta) ** 3) ** e
            I_0 * (1 / tan(theta)) ** 2
            I_0 * (1 / tan(theta)) ** e
            I_0 * (sin(theta) ** 2 / cos(theta)) ** e
            """,
        ),
        Module(
            "m8_sound_speed",
            "speed of sound",
            {
                "gamma": Parameter("adiabatic index", 1.3, 1.7, "adiabatic_index", log=False),
                "T": Parameter("temperature", 10, 1e3, "temperature"),
                "M": Parameter("molar mass", 1e-3, 0.1, "molar_mass"),
            },
            """
            sqrt(gamma * 351.6 * T ** 2 / M)
            sqrt(gamma * 351.6 * T ** 2 / M ** 1.5)
            sqrt(exp(gamma) * 351.6 * T ** 2 / M ** 1.5)
            gamma * 351.6 * T / M
            gamma * 351.6 * T / M ** (1 / 3)
            log(gamma) * 351.6 * T / M ** (1 / 3)
            sqrt(351.6 * T / M)
            sqrt(351.6 * T * M ** 1.5)
            (351.6 * T * M ** 1.5) ** -2.8
            """,
            ("distance", "driving_frequency", "tube_diameter"),
        ),
        Module(
            "m9_hooke_law",
            "energy",
            {"x": Parameter("displacement", 1e-3, 1)},
            """
            462.282 * x ** 2
            462.282 * x ** 2 + 1241.9012 * x
            462.282 * x ** 2 + 1241.9012 * x + 12.578 / x ** 0.5
            462.282 * x ** 0.5
            462.282 * x ** 0.5 + 1241.9012 * x ** 3
            462.282 * x ** 0.5 + 1241.9012 * x ** 3 + 12.578 / x ** 0.3
            462.282 * x ** 3.4
            462.282 * x ** 3.4 + 1241.9012 * x ** 0.5
            462.282 * x ** 3.4 + 1241.9012 * x ** 0.5 + 12.578 / x ** (10 / 3)
            """,
            ("m",),
            is_undefined=lambda values: values["x"] < 0,
        ),
        Module(
            "m10_be_distribution",
            "occupation number",
            {
                "omega": Parameter("frequency", 1e8, 1e10, default=1e8),
                "T": Parameter("temperature", 10, 1e3, "temperature"),
            },
            """
            1 / (exp(1.0513e-14 * omega / T) + 1)
            1 / (exp(1.0513e-14 * omega ** 1.5 / T) + 1)
            1 / (exp(1.0513e-14 * omega ** 1.5 / T ** 2) + 1)
            1 / (exp(1.0513e-14 * omega ** 0.5 / T) - 1)
            1 / (exp(1.0513e-14 * omega ** 0.5 * T) - 1)
            1 / (exp(1.0513e-14 * omega ** 0.5 * T ** 2.3) - 1)
            1 / (exp(1.0513e-14 * omega / T ** 3) - 1)
            1 / (exp(1.0513e-14 * omega ** 1.5 / T ** 3) - 1)
            1 / (-log(1.0513e-14 * omega ** 1.5 / T ** 3) - 1)
            """,
            ("probe_frequency", "center_frequency", "bandwidth"),
            must_be_positive=True,
        ),
        Module(
            "m11_heat_transfer",
            "heat",
            {
                "m": Parameter("mass", 1e-3, 1e3),
                "c": Parameter("specific heat", 1e2, 1e4),
                "delta_T": Parameter("temperature difference", 10, 1e3),
            },
            """
            m * c * delta_T ** 2.5
            c / (m * delta_T ** 2.5)
            c / (m ** (e + 1) * delta_T ** 2.5)
            m ** 2.5 * c * delta_T
            c / (m ** 2.5 * delta_T)
            c / (m ** 2.5 * delta_T ** (e + 1))
            (m * delta_T) ** 2.5 * c
            c / (m * delta_T) ** 2.5
            c / (m * delta_T) ** (e + 1)
            """,
            is_zero=_any_not_positive,
        ),
    )
}
