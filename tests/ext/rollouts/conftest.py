"""Commands, called as a person does."""

from tests.cli.conftest import cluster as cluster
from tests.cli.conftest import finished_run as finished_run
from tests.cli.conftest import gymq as gymq
from tests.cli.conftest import here as here
