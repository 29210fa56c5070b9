"""The errors of a proof, in a form that a model can work with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gymq.workers.resources.math_formal_lean.compiler import TIMEOUT, CompilerOutput

MAX_ERRORS = 8
MAX_RAW_CHARACTERS = 2000
LINES_BEFORE, LINES_AFTER = 4, 1

EMPTY = "There is no proof in the answer. Give a complete proof in Lean 4."
TOO_SLOW = (
    "Compiling the proof took too long and was stopped. Simplify it: break it into smaller steps, and prefer tactics "
    "with little search."
)
NOT_FINISHED = (
    "The compiler did not get to the end of the program, or did not find the theorem under its name there. Prove the "
    "theorem as it is stated."
)
OTHER_AXIOMS = "The proof stands on axioms other than propext, Classical.choice and Quot.sound. Prove it without them."
RUNS_CODE = "The proof may not use `{word}`, which runs code or changes the language while it is compiled."
NOTHING_SAID = "The proof was not accepted, but the compiler printed nothing."

CORRECTION_PROMPT = """\
This proof in Lean 4 was not accepted:

{proof_attempt}

What the compiler says:

{error_message}

Find out what is wrong and correct the proof. Answer with the whole theorem and its proof in one block that begins with
```lean4 and ends with ```. Write nothing after the block."""

_MESSAGE = re.compile(
    r"^[^\n]*?:(?P<line>\d{1,9}):(?P<column>\d{1,9}): (?P<severity>error|warning|information|info|trace)"
    r"(?:\([^)\n]*\))?:",
    re.MULTILINE,
)


class CompilerError(NamedTuple):
    """An error at a place of the program."""

    line: int  # the first is 1
    column: int  # the first is 0
    message: str


def feedback(output: CompilerOutput, program: str) -> str:
    """The errors on stderr with the lines they are about. Without any, those on stdout and all that was printed."""
    if output.process_status == TIMEOUT:
        return TOO_SLOW
    lines = program.split("\n")
    on_stderr, on_stdout = (
        [error for error in _errors(text) if 1 <= error.line <= len(lines)] for text in (output.stderr, output.stdout)
    )
    if on_stderr:
        return _shown(on_stderr, lines)
    printed = "\n".join(text for text in (output.stdout, output.stderr) if text.strip())
    if not printed:
        return NOTHING_SAID
    cut = "\n... (cut)" if len(printed) > MAX_RAW_CHARACTERS else ""
    shown = [_shown(on_stdout, lines)] if on_stdout else []
    return "\n\n".join([*shown, f"The compiler printed:\n{printed[:MAX_RAW_CHARACTERS]}{cut}"])


def has_errors(output: CompilerOutput) -> bool:
    """Return whether the compiler reported an error, regardless of its exit status."""
    return any(next(_errors(text), None) is not None for text in (output.stdout, output.stderr))


def _errors(text: str) -> Iterator[CompilerError]:
    """Messages of the form `file:line:column: error: ...`, which go on until the next message of any severity."""
    found = list(_MESSAGE.finditer(text))
    ends = [message.start() for message in found[1:]] + [len(text)]
    for message, end in zip(found, ends, strict=False):
        if message["severity"] == "error":
            yield CompilerError(int(message["line"]), int(message["column"]), text[message.end() : end].strip())


def _shown(errors: list[CompilerError], lines: list[str]) -> str:
    parts = [_with_context(number, error, lines) for number, error in enumerate(errors[:MAX_ERRORS], 1)]
    if len(errors) > MAX_ERRORS:
        parts.append(f"... and {len(errors) - MAX_ERRORS} more errors.")
    return "\n\n".join(parts)


def _with_context(number: int, error: CompilerError, lines: list[str]) -> str:
    """Return the error under its line, which is underlined from its column on."""
    index = error.line - 1
    underline = " " * error.column + "^" * max(1, len(lines[index]) - error.column)
    shown = [*lines[max(0, index - LINES_BEFORE) : index + 1], underline, *lines[index + 1 : index + 1 + LINES_AFTER]]
    code = "\n".join(shown)
    return f"Error {number}, line {error.line}, column {error.column}:\n```lean4\n{code}\n```\n{error.message}"
