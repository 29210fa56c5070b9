from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from gymq.workers.resources.math_formal_lean import compiler, worker
from gymq.workers.resources.math_formal_lean.finish import Finish, full_name
from gymq.workers.resources.math_formal_lean.tests import lean_servers
from gymq.workers.resources.math_formal_lean.worker import FormalProofs

import gymq
from gymq.testing import Harness, prompt, reply

ROW = {
    **prompt("Prove it."),
    "header": "import Mathlib\n\n",
    "formal_statement": "theorem two_add (n : ℕ) (h : n = 2) : n + 2 = 4 := by\n",
}


@asynccontextmanager
async def sandbox(answer=lean_servers.sandbox, **options):
    async with lean_servers.serving("/execute", answer) as (host, port):
        options |= {"sandbox_host": host, "sandbox_port": port}
        async with Harness(FormalProofs, options) as env:
            yield env


@asynccontextmanager
async def kimina(answer=lean_servers.kimina, key="the-key"):
    async with lean_servers.serving("/api/check", answer) as (host, port):
        options = {"kimina_url": f"http://{host}:{port}/", "kimina_api_key": key}
        async with Harness(FormalProofs, options) as env:
            yield env


def proof(*tactics):
    lines = "".join(f"  {tactic}\n" for tactic in tactics)
    return reply(f"```lean4\n{ROW['formal_statement']}{lines}```")


@pytest.mark.parametrize("place", [sandbox, kimina])
@pytest.mark.parametrize(
    ("tactic", "status"),
    [("rfl", "completed"), ("wrong", "failed"), ("sorry", "has_sorry"), ("loop", "timeout")],
)
async def test_the_compiler_decides(place, tactic, status):
    async with place() as env:
        verdict = await env.verify(ROW, proof("subst h", tactic))
    assert verdict.fields["proof_status"] == status
    assert verdict.reward == float(status == "completed")
    assert verdict.fields["needs_correction"] == (status != "completed")


@pytest.mark.parametrize("place", [sandbox, kimina])
async def test_what_is_wrong_comes_back_with_its_line(place):
    async with place() as env:
        verdict = await env.verify(ROW, proof("subst h", "wrong"))
    assert "  wrong\n  ^^^^^\n```\nunknown identifier 'wrong'\n⊢ False" in verdict.fields["error_feedback"]
    assert verdict.fields["error_feedback"] in verdict.fields["correction_prompt"]
    assert "subst h" in verdict.fields["correction_prompt"]


async def test_a_template_of_ones_own_is_filled_whatever_the_reply_holds():
    async with sandbox(refinement_prompt_template="{proof_attempt}|{error_message}") as env:
        verdict = await env.verify(ROW, reply("exact {error_message} loop"))
    assert verdict.fields["correction_prompt"].startswith("exact {error_message} loop|Compiling")


def test_a_template_with_unknown_placeholders_is_refused():
    with pytest.raises(gymq.OptionsError, match="proof_attempt"):
        FormalProofs({"refinement_prompt_template": "Try {again}."})


async def test_a_sorry_behind_a_long_output_is_found():
    program_of_warnings = reply("```lean4\n" + "sorry\n" * 100 + "\n```")
    async with sandbox(max_output_characters=10) as env:
        verdict = await env.verify(ROW, program_of_warnings)
    assert verdict.fields["proof_status"] == "has_sorry"
    assert len(verdict.fields["compiler_output"]["stdout"]) == 10


async def test_a_proof_that_prints_without_end_is_not_accepted(monkeypatch):
    monkeypatch.setattr(compiler, "MAX_OUTPUT_CHARACTERS", 10)
    monkeypatch.setattr(worker, "MAX_OUTPUT_CHARACTERS", 10)
    async with sandbox() as env:
        verdict = await env.verify(ROW, proof("sorry"))
    assert (verdict.reward, verdict.fields["proof_status"]) == (0.0, "output_too_long")


async def test_a_sandbox_that_does_not_answer_in_time_counts_as_the_time_limit(monkeypatch):
    monkeypatch.setattr(compiler, "SANDBOX_EXTRA_S", 0.1)
    async with sandbox(lean_servers.hanging, compilation_timeout=0.1) as env:
        verdict = await env.verify(ROW, proof("rfl"))
    assert (verdict.reward, verdict.fields["proof_status"]) == (0.0, "timeout")


async def test_a_kimina_server_that_does_not_answer_is_a_failure_and_no_zero(monkeypatch):
    monkeypatch.setattr(compiler, "KIMINA_EXTRA_S", -29.9)
    async with kimina(lean_servers.hanging) as env:
        with pytest.raises(gymq.ComponentFailed, match="no answer within"):
            await env.verify(ROW, proof("rfl"))


async def test_a_sandbox_that_is_not_there_is_a_failure_and_no_zero():
    async with lean_servers.serving("/execute", lean_servers.sandbox) as (host, port):
        pass
    async with Harness(FormalProofs, {"sandbox_host": host, "sandbox_port": port}) as env:
        with pytest.raises(gymq.ComponentFailed, match=f"{host}:{port}/execute"):
            await env.verify(ROW, proof("rfl"))


@pytest.mark.parametrize("place", [sandbox, kimina])
@pytest.mark.parametrize(
    ("status", "text", "reason"),
    [
        (502, "Bad Gateway", "status 502: Bad Gateway"),
        (307, "", "status 307"),
        (200, "<html>", "not JSON"),
        (200, "[]", "not a JSON object"),
        (200, "{}", "must have the text fields|not that of a Kimina"),
        (200, '{"process_status": "completed", "stdout": null, "stderr": ""}', "must have the text fields|not that of"),
        (200, '{"results": [{"id": "0", "response": {"messages": [{}]}}]}', "must have the text fields|not that of"),
    ],
)
async def test_an_answer_that_is_none_is_a_failure_and_no_zero(place, status, text, reason):
    async with place(lean_servers.answering(status, text)) as env:
        with pytest.raises(gymq.ComponentFailed, match=reason):
            await env.verify(ROW, proof("rfl"))


@pytest.mark.parametrize("trouble", ["crash", "unparsed"])
async def test_a_lean_process_that_fails_is_a_failure_and_no_zero(trouble):
    async with kimina() as env:
        with pytest.raises(gymq.ComponentFailed, match=r"process ended|Could not parse"):
            await env.verify(ROW, proof(trouble))


async def test_a_wrong_key_is_a_failure_that_says_so():
    async with kimina(key="another") as env:
        with pytest.raises(gymq.ComponentFailed, match=r"401: .*invalid API key"):
            await env.verify(ROW, proof("rfl"))


async def test_the_number_of_the_attempt_comes_back():
    async with sandbox() as env:
        verdict = await env.verify(ROW | {"turn_index": 2}, proof("rfl"))
    assert verdict.fields["turn_index"] == 2


@pytest.mark.parametrize("place", [sandbox, kimina])
@pytest.mark.parametrize(
    ("tactics", "status"),
    [
        (["native_decide"], "other_axioms"),
        (["exact foo -- exit 0"], "not_finished"),
        (["run_tac (IO.Process.exit 0)"], "runs_code"),
        (["rfl", 'elab "#print" : command => pure ()'], "runs_code"),
        (["set_option debug.skipKernelTC true in", "decide +kernel"], "runs_code"),
        (["set_option «debug».«skipKernelTC» true in decide +kernel"], "runs_code"),
        (["have «a--b» := trivial; run_tac pure ()", "rfl"], "runs_code"),
        (["rfl", "@[tactic x] def f : Lean.Elab.Tactic.Tactic := fun _ => pure ()"], "runs_code"),
        (["rfl", "open Lean /- a -/ Meta", "@[norm_num 1] def f : NormNumExt where eval := g"], "runs_code"),
        (["rfl", '@[app_unexpander f] def g := fun _ => do (← IO.FS.readFile "program.lean")'], "runs_code"),
        (["rfl -- run_tac is not used"], "completed"),
        (["/- In Lean 4, a Debugger. -/", "rfl"], "completed"),
    ],
)
async def test_a_proof_is_compiled_to_its_end_and_stands_on_the_usual_axioms(place, tactics, status):
    async with place() as env:
        verdict = await env.verify(ROW, proof(*tactics))
    assert (verdict.fields["proof_status"], verdict.reward) == (status, float(status == "completed"))
    assert verdict.fields["needs_correction"] == (status != "completed")
    async with sandbox(hardened=False) as env:
        assert (await env.verify(ROW, proof(*tactics))).reward == 1.0


async def test_the_end_is_not_part_of_what_is_kept():
    async with sandbox() as env:
        verdict = await env.verify(ROW, proof("rfl"))
    assert verdict.fields["compiler_output"] == {"process_status": "completed", "stdout": "", "stderr": ""}
    assert verdict.fields["predicted_proof"].endswith("\n  rfl")


def printing(text, status="completed"):
    """A sandbox that compiles everything to the end, and prints a text before it."""

    async def answer(request):
        program = (await request.json())["generated_code"]
        stdout = "\n".join([text, *lean_servers.printed_at_the_end(program)])
        return web.json_response({"process_status": status, "stdout": stdout, "stderr": ""})

    return answer


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("t.lean:4:2: error: unsolved goals\n⊢ False", "failed"),
        ("t.lean:4:2: warning: unused variable", "completed"),
        ("'two_add' depends on axioms: [cheat]", "completed"),
    ],
)
async def test_an_error_is_one_whatever_the_status(text, status):
    async with sandbox(printing(text)) as env:
        assert (await env.verify(ROW, proof("rfl"))).fields["proof_status"] == status
    async with sandbox(printing(text), hardened=False) as env:
        assert (await env.verify(ROW, proof("rfl"))).fields["proof_status"] == "completed"


NAMED = Finish("N.two_add", "00")


@pytest.mark.parametrize(
    ("stdout", "problem"),
    [
        ("'N.two_add' does not depend on any axioms", None),
        ("'N.two_add' depends on axioms: [propext,\n Classical.choice,\n Quot.sound]", None),
        ("t.lean:9:0: info: 'N.two_add' depends on axioms: [propext]", None),
        ("'N.two_add' depends on axioms: [propext, sorryAx]", "other_axioms"),
        ("'N.two_add' depends on axioms: [cheat]", "other_axioms"),
        ("'N.X.two_add' does not depend on any axioms", "not_finished"),
        ("'two_add' does not depend on any axioms", "not_finished"),
        ("unknown constant 'N.two_add'", "not_finished"),
    ],
)
def test_which_axioms_a_theorem_stands_on(stdout, problem):
    assert NAMED.problem(f"00 begin\n{stdout}\n00 end\n") == problem
    assert NAMED.problem(f"{stdout}\n00 begin\n") == "not_finished"
    assert NAMED.problem(f"{stdout}\n01 begin\n{stdout}\n01 end\n") == "not_finished"


@pytest.mark.parametrize(
    ("header", "statement", "name"),
    [
        ("import Mathlib\n\n", "theorem t (n : ℕ) : n = n := by\n", "t"),
        ("namespace A\nsection\nnamespace B\nend B\n", "lemma t: True := by\n", "A.t"),
        ("namespace A\nend A\nnamespace B.C\n", "@[simp] theorem t {n} : True := by\n", "B.C.t"),
        ("", "def f := 1\n\ntheorem t : True := by\n", "t"),
        ("", "example : True := by\n", None),
    ],
)
def test_the_full_name_of_a_theorem(header, statement, name):
    assert full_name(header, statement) == name


def test_each_program_has_a_mark_of_its_own():
    assert len({Finish.of("t").mark for _ in range(10)}) == 10


def test_what_the_end_prints_is_not_for_instances_of_the_program_to_say():
    """Lean 4.28 printed `HIJACKED mark begin` for `#eval "mark begin"` behind `instance : Repr String`."""
    assert "#eval" not in Finish.of("t").behind("theorem t : True := trivial")
