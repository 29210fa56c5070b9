"""These run on uvloop, as worker processes do."""

from tests.support.on_uvloop import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
