"""math_formal_lean: a theorem stated in Lean 4, proved by the reply. The compiler decides.

A proof that is not accepted gets feedback for another attempt; an agent may pass it on. The verifier has no state.
"""

from __future__ import annotations

import re
from typing import Any

import pydantic
from gymq.workers.resources.math_formal_lean.compiler import (
    COMPLETED,
    FAILED,
    MAX_OUTPUT_CHARACTERS,
    Compiler,
    CompilerOutput,
    Http,
    Kimina,
    Sandbox,
)
from gymq.workers.resources.math_formal_lean.feedback import (
    CORRECTION_PROMPT,
    EMPTY,
    NOT_FINISHED,
    OTHER_AXIOMS,
    RUNS_CODE,
    feedback,
    has_errors,
)
from gymq.workers.resources.math_formal_lean.finish import Finish, code_that_runs, full_name
from gymq.workers.resources.math_formal_lean.local_compiler import Local, LocalLean
from gymq.workers.resources.math_formal_lean.program import Which, build_program

import gymq
from gymq.judge import PromptTemplate
from gymq.sandbox import SandboxOptions

FAILED_AT_THE_END = {"not_finished": NOT_FINISHED, "other_axioms": OTHER_AXIOMS}

_SORRY = re.compile(r"\bsorry\b", re.IGNORECASE)


class TheoremRow(gymq.Row):
    header: str  # imports, options, namespaces
    formal_statement: str  # up to `:= by` and a newline
    informal_prefix: str | None = None
    name: str | None = None
    turn_index: int = 0  # number of attempts before this one


class TheoremOptions(gymq.WorkerOptions):
    sandbox_host: str = "127.0.0.1"
    sandbox_port: int = 6000
    kimina_url: str | None = None  # instead of the sandbox
    kimina_api_key: str | None = None
    local_lean: LocalLean | None = None  # instead of both: a compiler of this machine
    sandbox: SandboxOptions = SandboxOptions()  # for it
    compilation_timeout: pydantic.PositiveFloat = 30.0
    max_output_characters: pydantic.NonNegativeInt = 1000  # of each stream that are kept in the result
    extract_code_mode: Which = "last"
    restate_formal_statement: bool = True
    strip_theorem_from_proof: bool = True
    refinement_prompt_template: str | None = None
    hardened: bool = True  # False: what the compiler calls completed is a proof

    @pydantic.model_validator(mode="after")
    def _check_place(self) -> TheoremOptions:
        if self.local_lean is not None and self.kimina_url is not None:
            raise ValueError("set either `local_lean` or `kimina_url`")
        if self.local_lean is not None and not self.local_lean.axioms and not self.hardened:
            raise ValueError("local_lean: a compiler without `#print axioms` needs `hardened: true`")
        return self

    @pydantic.field_validator("refinement_prompt_template")
    @classmethod
    def _check_template(cls, text: str | None) -> str | None:
        _template(text)
        return text


class FormalProofs(gymq.Resources[TheoremRow]):
    """Reward 1 if Lean accepts the proof and it leaves nothing out with `sorry`."""

    Options = TheoremOptions

    reward_range = (0.0, 1.0)
    deterministic = False
    needs = frozenset({"sandbox"})

    async def start(self) -> None:
        options = self.options
        self._template = _template(options.refinement_prompt_template)
        self._compiled = self._as_meant if options.hardened else self._as_published
        self.sandbox = None if options.local_lean is None else await options.sandbox.started()
        headers = {"Authorization": f"Bearer {options.kimina_api_key}"} if options.kimina_api_key else {}
        self._compiler: Compiler
        if self.sandbox is not None and options.local_lean is not None:
            self._compiler = local = Local(self.sandbox, options.sandbox, options.local_lean)
            await local.check()
        elif options.kimina_url is not None:
            self._compiler = Kimina(options.kimina_url, self.post)
        else:
            self._compiler = Sandbox(f"http://{options.sandbox_host}:{options.sandbox_port}", self.post)
        self._http = Http(headers)

    async def stop(self) -> None:
        await self._http.close()
        if self.sandbox is not None:
            await self.sandbox.stop()

    async def post(self, url: str, body: dict[str, Any], timeout_s: float) -> tuple[int, str]:
        """See `compiler.Post`."""
        return await self._http.post(url, body, timeout_s)

    async def verify(self, request: gymq.VerifyRequest[TheoremRow]) -> gymq.Verdict:
        row, options, reply = request.row, self.options, request.reply_text
        if not reply.strip():
            return self._verdict(row, "empty_generation", "", None, attempt="(empty)", error=EMPTY)
        statement = row.formal_statement if options.restate_formal_statement else ""
        mode, strip_theorem = options.extract_code_mode, options.strip_theorem_from_proof
        program = build_program(reply, row.header, statement, mode, strip_theorem=strip_theorem)
        return await self._compiled(row, statement, program, reply)

    async def _as_published(self, row: TheoremRow, _statement: str, program: str, reply: str) -> gymq.Verdict:
        output = await self._compiler.compile(program, self.options.compilation_timeout)
        return self._judged(row, proof_status(output), program, output, reply)

    async def _as_meant(self, row: TheoremRow, statement: str, program: str, reply: str) -> gymq.Verdict:
        options = self.options
        axioms = options.local_lean is None or options.local_lean.axioms
        word = code_that_runs(program.removeprefix(row.header), axioms=axioms)
        if word is not None:
            return self._verdict(row, "runs_code", program, None, attempt=reply, error=RUNS_CODE.format(word=word))
        finish = Finish.of(full_name(row.header, statement) if axioms else None)
        output = await self._compiler.compile(finish.behind(program), options.compilation_timeout)
        status = hardened_status(output, finish)
        return self._judged(row, status, program, output._replace(stdout=finish.without(output.stdout)), reply)

    def _judged(self, row: TheoremRow, status: str, program: str, output: CompilerOutput, reply: str) -> gymq.Verdict:
        if status == COMPLETED:
            return self._verdict(row, status, program, output)
        error = FAILED_AT_THE_END.get(status) or feedback(output, program)
        return self._verdict(row, status, program, output, attempt=reply, error=error)

    def _verdict(
        self,
        row: TheoremRow,
        status: str,
        program: str,
        output: CompilerOutput | None,
        *,
        attempt: str = "",
        error: str | None = None,
    ) -> gymq.Verdict:
        prompt = None if error is None else self._template.fill(proof_attempt=attempt, error_message=error)
        return gymq.Verdict(
            float(status == COMPLETED),
            proof_status=status,
            predicted_proof=program,
            compiler_output=None if output is None else self._kept(output),
            turn_index=row.turn_index,
            needs_correction=error is not None,
            error_feedback=error,
            correction_prompt=prompt,
        )

    def _kept(self, output: CompilerOutput) -> dict[str, str]:
        most = self.options.max_output_characters
        return {
            "process_status": output.process_status,
            "stdout": output.stdout[:most],
            "stderr": output.stderr[:most],
        }


def proof_status(output: CompilerOutput) -> str:
    """`completed` for a proof that counts; otherwise what happened, in a word."""
    if output.process_status != COMPLETED:
        return output.process_status
    if _SORRY.search(output.stdout) or _SORRY.search(output.stderr):
        return "has_sorry"
    # What follows may have been cut off, also a warning that something is left out.
    if max(len(output.stdout), len(output.stderr)) >= MAX_OUTPUT_CHARACTERS:
        return "output_too_long"
    return COMPLETED


def hardened_status(output: CompilerOutput, finish: Finish) -> str:
    """Return `completed` for a program without errors that was compiled to its end and stands on the usual axioms."""
    status = proof_status(output)
    if status != COMPLETED:
        return status
    return FAILED if has_errors(output) else finish.problem(output.stdout) or COMPLETED


def _template(text: str | None) -> PromptTemplate:
    return PromptTemplate(text or CORRECTION_PROMPT, "proof_attempt", "error_message")
