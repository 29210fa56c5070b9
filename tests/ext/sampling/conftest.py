"""A world of workers for each test, and a training run on it."""

from tests.trainer.conftest import alternating as alternating
from tests.trainer.conftest import examples as examples
from tests.trainer.conftest import training as training
from tests.trainer.conftest import world as world
