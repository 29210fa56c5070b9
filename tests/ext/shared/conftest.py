"""The small cluster of the tests of dead letters."""

from tests.bus.queue.dead_letters.conftest import cluster as cluster
