"""The commands of authors, as `gymq --help` lists them."""

from gymq.cli.shared.command import Command

INIT = Command("Author", "Create a new environment or agent.", "gymq.ext.workbench.init:init")
TEST = Command("Author", "Run the tests and the example rows of a worker.", "gymq.ext.workbench.test:test")
LIST = Command("Author", "List the available workers and what each needs.", "gymq.ext.workbench.list:list")
CONFIG = Command("Author", "Show or check a configuration.", "gymq.ext.workbench.config:config")
