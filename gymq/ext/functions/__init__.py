"""Functions of a program that a model wrote: they are called, and tested, in a sandbox."""

from gymq.ext.functions.runner import Runner as Runner
from gymq.ext.functions.unit_tests import UnitTest as UnitTest
from gymq.ext.functions.unit_tests import UnitTests as UnitTests
from gymq.ext.functions.unit_tests import program_in as program_in
from gymq.ext.functions.unit_tests import run_tests as run_tests
