"""Programs that nobody has read, run where they can do no harm. docs/sandbox.md says what is guaranteed."""

from gymq.sandbox.interface import GIB as GIB
from gymq.sandbox.interface import MIB as MIB
from gymq.sandbox.interface import Finished as Finished
from gymq.sandbox.interface import Limits as Limits
from gymq.sandbox.interface import Program as Program
from gymq.sandbox.interface import Sandbox as Sandbox
from gymq.sandbox.interface import SandboxFailed as SandboxFailed
from gymq.sandbox.interface import Session as Session
from gymq.sandbox.interface import SessionEnded as SessionEnded
from gymq.sandbox.interface import check_path as check_path
from gymq.sandbox.local import LocalSandbox as LocalSandbox
from gymq.sandbox.options import SandboxOptions as SandboxOptions
from gymq.sandbox.python_session import PythonSession as PythonSession
from gymq.sandbox.python_session import Step as Step
