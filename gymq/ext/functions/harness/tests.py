"""Unit tests of the functions of a program, in order."""

from __future__ import annotations

import ast
import builtins
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .program import ProgramEndedError, ProgramError, TestedProgram, UntestableError, text_of

_TESTS = "<tests>"  # name of their code in tracebacks
_SHOWN_TITLE, _SHOWN_PROBLEM = 200, 500


class TestsOfFunctions:
    """The tests of a program's functions, in order."""

    def __init__(self, program: TestedProgram, text: str) -> None:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UntestableError(f"the tests cannot be parsed: {error}") from None
        self._program = program
        self._lines = text.splitlines()
        self._statements = tree.body
        self._functions = [
            node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
        ]
        self._names: dict[str, Any] = {"__name__": "tests"}
        _check_tests(tree, self._functions)

    def run(self, code: str, say: Callable[..., None]) -> None:
        """Run the tests and say the result of each."""
        titles = [self._lines[node.lineno - 1].strip() for node in self._statements if _is_test(node)]
        say("tests", [title[:_SHOWN_TITLE] for title in [*titles, *(node.name for node in self._functions)]])
        problem = self._problem(self._load, code)
        for node in self._statements:
            if _is_test(node):
                _say_result(say, problem or self._problem(self._check, node))
            elif problem is None:
                problem = self._problem(self._execute, node)
        for function in self._functions:
            _say_result(say, problem or self._problem(lambda name=function.name: self._names[name]()))

    def _load(self, code: str) -> None:
        loaded = {name: value for name, value in self._program.load(code).items() if name.isidentifier()}
        module = sys.modules["solution"] = ModuleType("solution")
        vars(module).update(loaded)
        # A program that defines `all` or `abs` must not decide what the tests mean by it.
        own = {name: value for name, value in loaded.items() if name[:2] != "__" and not hasattr(builtins, name)}
        self._names.update(own)

    def _check(self, node: ast.stmt) -> None:
        """Run a statement; a comparison that fails says what it found on its left side."""
        if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare) or len(node.test.ops) > 1:
            self._execute(node)
            return
        values = {"left": self._value(node.test.left), "right": self._value(node.test.comparators[0])}
        left, right = (ast.Name(name, ast.Load()) for name in values)
        comparison = ast.fix_missing_locations(ast.Expression(ast.Compare(left, node.test.ops, [right])))
        if not eval(compile(comparison, _TESTS, "eval"), values):
            said = "" if node.msg is None else f"{self._value(node.msg)}: "
            raise AssertionError(f"{said}{ast.unparse(node.test.left)} is {values['left']!r:.200}")

    def _execute(self, node: ast.stmt) -> None:
        exec(compile(ast.Module([node], []), _TESTS, "exec", dont_inherit=True), self._names)

    def _value(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), _TESTS, "eval", dont_inherit=True), self._names)

    def _problem(self, run: Callable[..., Any], *arguments: Any) -> str | None:
        """Return why something failed; None if it did not.

        Raises:
            UntestableError: the tests are to blame, and not the program.
        """
        try:
            run(*arguments)
        except UntestableError:
            raise
        except ImportError as error:
            if error.name != "solution":
                raise UntestableError(f"the tests import what is not there: {error}") from None
            return str(error)
        except ProgramEndedError:
            return "the program ended its process"
        except BaseException as error:
            kind = type(error).__name__
            text = text_of(error) or (self._line_of(error) if isinstance(error, AssertionError) else "")
            if isinstance(error, ProgramError):
                return f"the program ended with an exception: {text}"
            return f"{kind}: {text}" if text else kind
        return None

    def _line_of(self, error: BaseException) -> str:
        """Return the line of the tests that raised an error."""
        frames = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == _TESTS]
        return self._lines[frames[-1] - 1].strip() if frames else ""


def _check_tests(tree: ast.Module, functions: list[ast.FunctionDef]) -> None:
    """Check that there are tests, and that they call the program.

    Raises:
        UntestableError: it is not so.
    """
    if not functions and not any(map(_is_test, tree.body)):
        raise UntestableError("the tests have no assert, no call that stands alone and no function test_...")
    for function in functions:
        if _num_required(function.args):
            raise UntestableError(f"{function.name} takes arguments, and a test gets none")
    nodes = list(ast.walk(tree))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    written = {node.id for node in nodes if isinstance(node, ast.Name)} - read
    written |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    imported = {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    imported |= {alias.asname or alias.name for node in imports for alias in node.names}
    is_explicit = "solution" in imported or any(node.module == "solution" for node in imports)
    if not is_explicit and not read - written - imported - set(dir(builtins)):
        raise UntestableError("the tests call no function of the program; `from solution import NAME` names one")


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))


def _num_required(arguments: ast.arguments) -> int:
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return positional + sum(default is None for default in arguments.kw_defaults)


def _say_result(say: Callable[..., None], problem: str | None) -> None:
    if problem is None:
        say("passed")
    else:
        say("failed", problem[:_SHOWN_PROBLEM])
