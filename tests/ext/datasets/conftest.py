"""Commands, called as a person does."""

from tests.cli.conftest import gymq as gymq
