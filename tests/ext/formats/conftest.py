"""What tests of commands have, for files of other programs."""

from tests.cli.conftest import gymq as gymq
