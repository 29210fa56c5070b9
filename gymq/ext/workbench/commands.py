"""The commands of authors, as `gymq --help` lists them."""

from gymq.cli.shared.command import Command

INIT = Command("Author", "Create a new environment or agent.", "gymq.ext.workbench.init:init")
TEST = Command("Author", "Run the tests and the example rows of a worker.", "gymq.ext.workbench.test:test")
