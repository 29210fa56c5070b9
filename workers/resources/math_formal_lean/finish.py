"""Whether the compiler came to the end of a program, and which axioms the theorem stands on.

Lean runs code while it compiles, so a program may end the compiler with status 0 before it has reported anything.
Commands that are put behind the program show that it was compiled to its end, and print the theorem's axioms. `#print`
writes a text as it is; what `#eval` writes of one is for instances to say, and a program may bring its own.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

ALLOWED_AXIOMS = frozenset({"propext", "Classical.choice", "Quot.sound"})

_COMMENT = re.compile(r"--[^\n]*")
_RUNS_CODE = re.compile(
    r"\b(?:run_tac|run_cmd|run_elab|run_meta|by_elab|elab|elab_rules|macro|macro_rules|syntax|declare_syntax_cat|d?simproc"
    r"|d?simproc_decl|initialize|builtin_initialize|implemented_by|extern|unsafe|\w+_elab)\b|#(?:eval|exit)\b|@\[[^\]\n]{0,200}\binit\b"
    # The compiler's own functions, also where they are opened, and its options such as `debug.skipKernelTC`.
    r"|\bIO\b|\bLean\b(?!\s*+[34]\b)|\bSystem\s*+\.|\b\w*[fF]ileMap\b|\bdebug\u00bb?\."
)
# By which a proof stands on axioms, or leaves something out; looked for only where the compiler does not list axioms.
_BRINGS_AXIOMS = re.compile(
    r"\b(?:axiom|constant|opaque|native_decide|bv_decide|sorryAx|lcProof|lcUnreachable|trustCompiler|ofReduce\w*"
    r"|reduceBool|reduceNat|set_option|import)\b|\+native\b"
)
_THEOREM = re.compile(r"^[ \t]*(?:@\[[^\]\n]{0,200}\][ \t]*)?(?:theorem|lemma)[ \t]+([^\s:({\[]+)", re.MULTILINE)
_SCOPE = re.compile(r"^[ \t]*(namespace|section|end)\b[ \t]*([^\s-]*)", re.MULTILINE)


def code_that_runs(proof: str, *, axioms: bool = True) -> str | None:
    """Return the first word of a proof that makes the compiler run code, or changes what commands mean, if any.

    Args:
        axioms: whether the compiler lists those of the theorem. Otherwise words that bring some are found too.
    """
    # Where a comment may end within its line, or a text or a name hold two hyphens, nothing is taken for a comment.
    code = proof if any(mark in proof for mark in ("/-", '"', "\u00ab")) else _COMMENT.sub("", proof)
    found = _RUNS_CODE.search(code) or (None if axioms else _BRINGS_AXIOMS.search(code))
    return None if found is None else found[0]


def full_name(header: str, statement: str) -> str | None:
    """Return the name of the statement's theorem with the namespaces that the header opens; None for an `example`."""
    theorems = _THEOREM.findall(statement)
    if not theorems:
        return None
    scopes: list[str] = []
    for scope in _SCOPE.finditer(header):
        if scope[1] != "end":
            scopes.append(scope[2] if scope[1] == "namespace" else "")
        elif scopes:
            scopes.pop()
    return ".".join([*filter(None, scopes), theorems[-1]])


@dataclass(frozen=True)
class Finish:
    """The commands behind a program, and what they show.

    Attributes:
        name: the theorem; None: it has none, so its axioms are not looked at.
        mark: a text that no program can know beforehand.
    """

    name: str | None
    mark: str

    @classmethod
    def of(cls, name: str | None) -> Finish:
        """Return commands with their own mark."""
        return cls(name, secrets.token_hex(16))

    def behind(self, program: str) -> str:
        """Return the program with the commands."""
        axioms = "" if self.name is None else f"#print axioms _root_.{self.name}\n"
        return f'{program}\n\n#print "{self.mark} begin"\n{axioms}#print "{self.mark} end"\n'

    def problem(self, stdout: str) -> str | None:
        """Return the error of a program that compiled: `not_finished` or `other_axioms`; None if it has none."""
        begin, end = self._place(stdout)
        if end < 0:
            return "not_finished"
        if self.name is None:
            return None
        named = re.escape(self.name)
        printed = re.search(
            rf"'{named}' (?:does not depend on any axioms|depends on axioms: \[([^\]]*)\])", stdout[begin:end]
        )
        if printed is None:
            return "not_finished"
        axioms = {axiom.strip() for axiom in (printed[1] or "").split(",")} - {""}
        return None if axioms <= ALLOWED_AXIOMS else "other_axioms"

    def without(self, stdout: str) -> str:
        """Return an output without what the commands printed."""
        begin, end = self._place(stdout)
        if end < 0:
            return stdout
        rest = stdout[end:].partition("\n")[2]
        return stdout[: stdout.rfind("\n", 0, begin) + 1] + rest

    def _place(self, stdout: str) -> tuple[int, int]:
        """Return where the first mark begins and the second; negative for a missing one."""
        begin = stdout.find(f"{self.mark} begin")
        return begin, -1 if begin < 0 else stdout.find(f"{self.mark} end", begin)
