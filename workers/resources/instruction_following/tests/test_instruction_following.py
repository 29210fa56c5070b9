"""What the recorded cases cannot say: processes, time limits, rows in both layouts, which text counts."""

import asyncio
import importlib.util
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from gymq.workers.resources.instruction_following.worker import InstructionFollowing

import gymq
from gymq.testing import Harness, prompt, reply
from tests.support.processes import kept_processes

__all__ = ["kept_processes"]

NO_COMMA = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [None], "prompt": "Go."}
ENDLESS = {"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": ["(a|a)*b"]}], "prompt": "Go."}


def row(metadata: Any, **members: Any) -> dict[str, Any]:
    return {**prompt("Go."), "id": 1, "verifier_metadata": metadata, **members}


def test_importing_the_worker_does_not_import_the_libraries():
    program = """if True:
        import sys
        import gymq.workers.resources.instruction_following.worker
        sys.exit("nltk" in sys.modules or "langdetect" in sys.modules)
        """
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_a_text_on_which_a_pattern_does_not_end_follows_nothing(monkeypatch):
    monkeypatch.setattr(InstructionFollowing, "compute_limits", replace(InstructionFollowing.compute_limits, cpu_s=0.5))
    async with Harness(InstructionFollowing, {"hardened": False}) as env:
        verdict = await env.verify(row(ENDLESS), reply("a" * 60))
    assert (verdict.reward, verdict.fields["follow_instruction_list"]) == (0.0, [False])


async def test_a_pattern_that_the_machine_does_not_get_round_to_is_a_failure_and_no_zero(monkeypatch, kept_processes):
    async with Harness(InstructionFollowing, {"hardened": False}, processes=kept_processes) as env:
        assert (await env.verify(row(NO_COMMA), reply("a"))).reward == 1.0
        monkeypatch.setattr(
            InstructionFollowing, "compute_limits", replace(InstructionFollowing.compute_limits, timeout_s=0.3)
        )
        with pytest.raises(gymq.RolloutError) as caught:
            await env.verify(row(ENDLESS), reply("a" * 60))
    assert caught.value.failure_class is gymq.FailureClass.VERIFIER_FAILED


async def test_other_rows_are_verified_while_a_pattern_does_not_end(kept_processes):
    async with Harness(InstructionFollowing, {"hardened": False}, processes=kept_processes) as env:
        stuck = asyncio.ensure_future(env.verify(row(ENDLESS), reply("a" * 60)))
        assert (await env.verify(row(NO_COMMA), reply("a, b"))).reward == 0.0
        assert not stuck.done()
        stuck.cancel()


async def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    wanted = r'langdetect is not installed: pip install "gymq\[instruction-following\]"'
    with pytest.raises(gymq.OptionsError, match=wanted):
        await InstructionFollowing().start()


async def test_rewards_are_all_or_nothing_or_a_share(kept_processes):
    metadata = {
        "instruction_id_list": ["punctuation:no_comma", "detectable_format:title", "made:up"],
        "kwargs": [{}, None],
        "prompt": "Go.",
    }
    nothing = {"instruction_id_list": [], "kwargs": [], "prompt": "Go."}
    rewards = []
    async with Harness(InstructionFollowing, processes=kept_processes) as env:
        for each in (metadata, nothing):
            for mode in ("binary", "fraction"):
                verdict = await env.verify(row(each | {"grading_mode": mode}), reply("plain"))
                rewards.append(verdict.reward)
        assert (await env.verify(row(metadata), reply("plain"))).fields == {
            "follow_all_instructions": False,
            "follow_instruction_list": [True, False],
            "verifier_metadata": metadata,
        }
    assert rewards == [0.0, 0.5, 1.0, 0.0]


def test_fields_beside_the_metadata_fill_it_up():
    author = InstructionFollowing()
    beside = {
        **prompt("Go."),
        "id": 1,
        **NO_COMMA,
        "grading_mode": "fraction",
        "verifier_metadata": {"prompt": "Stay."},
    }
    parsed = author.parse_row(beside).verifier_metadata
    assert parsed.model_dump() == NO_COMMA | {"prompt": "Stay.", "grading_mode": "fraction"}


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"verifier_metadata": {}}, "instruction_id_list"),
        ({"verifier_metadata": None}, "instruction_id_list"),
        ({"verifier_metadata": [1]}, "verifier_metadata"),
        ({"verifier_metadata": NO_COMMA | {"kwargs": [5]}}, "kwargs"),
        ({"verifier_metadata": NO_COMMA | {"instruction_id_list": "x"}}, "instruction_id_list"),
        ({"verifier_metadata": NO_COMMA | {"grading_mode": "half"}}, "grading_mode"),
        ({"grading_mode": "half"}, "grading_mode"),
        ({"id": "x"}, "id"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(members, named):
    with pytest.raises(gymq.InvalidTask, match=named):
        InstructionFollowing().parse_row(row(NO_COMMA, **members))


CALL = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "call_1"}


@pytest.mark.parametrize("said", [[], [""], [" \n"], ["...!"], [CALL], ["No comma.", CALL]])
@pytest.mark.parametrize("grading_mode", ["binary", "fraction"])
async def test_saying_nothing_follows_nothing(said, grading_mode, kept_processes):
    metadata = {
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [{}, {"num_words": 5, "relation": "less than"}],
        "prompt": "Write.",
        "grading_mode": grading_mode,
    }
    for hardened, reward in ((True, 0.0), (False, 1.0)):
        async with Harness(InstructionFollowing, {"hardened": hardened}, processes=kept_processes) as env:
            verdict = await env.verify(row(metadata), reply(*said))
        assert (verdict.reward, verdict.fields["follow_all_instructions"]) == (reward, hardened is False)


@pytest.mark.parametrize(("hardened", "followed"), [(True, [False, False, True]), (False, [True, True, True])])
async def test_a_text_without_a_language_is_in_no_language(hardened, followed, kept_processes):
    metadata = {
        "instruction_id_list": ["language:response_language", "change_case:english_capital", "punctuation:no_comma"],
        "kwargs": [{"language": "de"}, {}, {}],
        "prompt": "Schreibe.",
    }
    async with Harness(InstructionFollowing, {"hardened": hardened}, processes=kept_processes) as env:
        verdict = await env.verify(row(metadata), reply("\u2163"))  # a Roman numeral, in capitals
    assert verdict.fields["follow_instruction_list"] == followed
