"""Workers on a bus, for programs that ask their model through a gateway."""

from tests.support.worlds import empty_world as empty_world
from tests.support.worlds import quick as quick
from tests.support.worlds import world as world
