"""Runtimes of programs: sandboxes for those that may do harm, workspaces for those that are trusted.

docs/sandbox.md says what sandboxes guarantee, docs/agents.md how the program of an agent runs.
"""

from gymq.sandbox.interface import GIB as GIB
from gymq.sandbox.interface import MIB as MIB
from gymq.sandbox.interface import Limits as Limits
from gymq.sandbox.interface import Program as Program
from gymq.sandbox.interface import ProgramResult as ProgramResult
from gymq.sandbox.interface import ProgramSession as ProgramSession
from gymq.sandbox.interface import Runtime as Runtime
from gymq.sandbox.interface import Sandbox as Sandbox
from gymq.sandbox.interface import SessionEnded as SessionEnded
from gymq.sandbox.interface import check_path as check_path
from gymq.sandbox.local import LocalSandbox as LocalSandbox
from gymq.sandbox.options import SandboxOptions as SandboxOptions
from gymq.sandbox.process import run_command as run_command
from gymq.sandbox.python_session import PythonSession as PythonSession
from gymq.sandbox.python_session import Step as Step
from gymq.sandbox.workspace import Subprocess as Subprocess
from gymq.sandbox.workspace import Workspace as Workspace
