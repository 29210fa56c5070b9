"""Commands, called as a person does."""

from tests.cli.conftest import gymq as gymq
from tests.cli.conftest import here as here
