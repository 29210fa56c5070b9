"""What the recorded cases cannot say: groups whose members come late, again or never, and reward models that fail."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from gymq.workers.resources.genrm_compare.worker import GenRMCompare

import gymq
from gymq.authoring import CurrentCall, current_call
from gymq.testing import Harness, ScriptedModel, prompt, reply

MODEL = {"genrm_model_server": {"type": "responses_api_models", "name": "judge"}, "genrm_parse_retry_sleep_s": 0}

# The scores of s04 of the recorded cases: a beats b, c beats b a little, a beats c.
SCORES = {"ab": (5, 1, 1), "bc": (2, 3, 4), "ca": (3, 4, 5)}


def scored(pair: str, scores: dict[str, tuple[float, float, float]]) -> dict[str, Any]:
    first, second, ranking = scores[pair]
    return reply(json.dumps({"score_1": first, "score_2": second, "ranking": ranking}))


class Model(ScriptedModel):
    """Scores pairs by a table. `before(pair)` may wait or raise."""

    def __init__(self, scores: dict[str, Any], before: Callable[[str], Awaitable[None]] | None = None) -> None:
        super().__init__(self._say)
        self.asked: list[str] = []
        self._scores = scores
        self._before = before

    async def _say(self, _model: str, params: dict[str, Any]) -> dict[str, Any]:
        pair = params["metadata"]["response_1"] + params["metadata"]["response_2"]
        self.asked.append(pair)
        if self._before is not None:
            await self._before(pair)
        return scored(pair, self._scores)


def compare(model: ScriptedModel, size: int, **options: Any) -> Harness[GenRMCompare]:
    return Harness(GenRMCompare, MODEL | {"num_rollouts_per_prompt": size} | options, models=model)


def row(task: int | None = None, **members: Any) -> dict[str, Any]:
    index = {} if task is None else {"_ng_task_index": task}
    return {**prompt("Name a prime."), **index, **members}


def verify(env: Harness, said: str, content: dict[str, Any] | None = None, rollout: str = "-") -> asyncio.Task[Any]:
    """Ask for the verdict on a rollout, as its agent does."""

    async def ask() -> gymq.Verdict:
        current_call.set(CurrentCall(rollout, float("inf")))
        return await env.verify(content or row(), reply(said))

    return asyncio.create_task(ask())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def rewards(*verdicts: asyncio.Task[gymq.Verdict]) -> list[float]:
    async with asyncio.timeout(300):
        return [verdict.reward for verdict in await asyncio.gather(*verdicts)]


# Groups ---------------------------------------------------------------------------------------------------------------


async def test_a_comparison_that_comes_back_last_counts_like_the_others():
    go_on = asyncio.Event()

    async def before(pair: str) -> None:
        if pair == "ab":
            await go_on.wait()

    model = Model(SCORES, before)
    async with compare(model, 3) as env:
        verdicts = [verify(env, said) for said in "abc"]
        await until(lambda: len(model.asked) == 3)
        go_on.set()
        assert await rewards(*verdicts) == [4.5, 1.5, 3.0]


async def test_two_answers_are_compared_before_the_third_is_there():
    model = Model(SCORES)
    async with compare(model, 3) as env:
        verdicts = [verify(env, "a"), verify(env, "b")]
        await until(lambda: model.asked == ["ab"])
        assert await rewards(*verdicts, verify(env, "c")) == [4.5, 1.5, 3.0]
    assert sorted(model.asked) == ["ab", "bc", "ca"]


async def test_a_group_whose_time_is_over_is_scored_with_those_that_came():
    model = Model({"ab": (5, 1, 1), "ba": (2, 3, 4)})
    async with compare(model, 16, cohort_timeout_s=0.2) as env:
        verdicts = [verify(env, said) for said in "ab"]
        assert await rewards(*verdicts) == [4.0, 1.5]
        found = [(await verdict).fields for verdict in verdicts]
        assert (found[0]["cohort_size"], found[0]["num_failed_comparisons"]) == (2, 0)
        assert sum(len(fields.get("judge_calls", [])) for fields in found) == 2  # each comparison counts once


async def test_a_rollout_that_stays_alone_is_a_failure_and_no_reward():
    async with compare(Model({}), 2, cohort_timeout_s=0.05) as env:
        with pytest.raises(gymq.JudgeFailed, match="no other rollout of this prompt"):
            await verify(env, "a")


async def test_equal_prompts_of_other_tasks_runs_and_principles_are_other_groups():
    pairs = {first + second: (3, 1, 1) for first in "abcdefgh" for second in "abcdefgh"}
    model = Model(pairs)
    async with compare(model, 2) as env:
        groups = [
            (row(1), "one/1/{}"),
            (row(2), "one/2/{}"),
            (row(1), "two/1/{}"),
            (row(1, principle="Be brief."), "one/1/{}"),
        ]
        members = [(0, "aceg"), (1, "bdfh")]
        await rewards(
            *(
                verify(env, said, content, run.format(index))
                for index, answers in members
                for said, (content, run) in zip(answers, groups, strict=True)
            )
        )
    assert sorted(model.asked) == ["ab", "ba", "cd", "dc", "ef", "fe", "gh", "hg"]


async def test_more_rollouts_than_a_group_has_make_further_groups():
    model = Model({first + second: (3, 1, 1) for first in "abcdefg" for second in "abcdefg"})
    async with compare(model, 3, cohort_timeout_s=0.3) as env:
        verdicts = [verify(env, said) for said in "abcdefg"]  # all at once: none slips into a full group
        assert len(await rewards(*verdicts[:6])) == 6
        with pytest.raises(gymq.JudgeFailed, match="no other rollout"):
            await verdicts[6]
    assert sorted(model.asked) == ["ab", "bc", "ca", "de", "ef", "fd"]


async def test_a_verdict_asked_for_again_while_the_group_is_judged_is_that_of_the_group():
    go_on = asyncio.Event()

    async def before(_pair: str) -> None:
        await go_on.wait()

    model = Model({"ab": (5, 1, 1), "ba": (1, 5, 6)}, before)
    async with compare(model, 2) as env:
        verdicts = [verify(env, "a", rollout="run/0/0"), verify(env, "b", rollout="run/0/1")]
        await until(lambda: len(model.asked) == 2)
        verdicts.append(verify(env, "a", rollout="run/0/0"))
        await asyncio.sleep(0)
        go_on.set()
        assert await rewards(*verdicts) == [5.0, 1.0, 5.0]
    assert len(model.asked) == 2


async def test_a_verdict_asked_for_again_is_the_same():
    model = Model({"ab": (5, 1, 1), "ba": (1, 5, 6)})
    async with compare(model, 2) as env:
        first = verify(env, "a", rollout="run/0/0")
        again = verify(env, "a", rollout="run/0/0")  # while the group gathers: it takes no second place
        await until(lambda: len(env.author._cohorts._running) == 1)
        assert await rewards(first, again, verify(env, "b", rollout="run/0/1")) == [5.0, 5.0, 1.0]
        assert await rewards(verify(env, "a", rollout="run/0/0")) == [5.0]  # and afterwards
    assert sorted(model.asked) == ["ab", "ba"]


async def test_a_new_attempt_takes_the_place_of_the_old_one():
    model = Model({"ab": (9, 9, 1), "cb": (5, 1, 1), "bc": (1, 5, 6)})
    async with compare(model, 2) as env:
        old = verify(env, "a", rollout="run/0/0")
        await until(lambda: len(env.author._cohorts._running) == 1)
        new = verify(env, "c", rollout="run/0/0")
        await asyncio.sleep(0)
        assert await rewards(new, verify(env, "b", rollout="run/0/1")) == [5.0, 1.0]
        with pytest.raises(gymq.JudgeFailed, match="another attempt"):
            await old


async def test_a_caller_that_gives_up_takes_nobody_with_it():
    model = Model({"ab": (5, 1, 1), "ba": (1, 5, 6)})
    async with compare(model, 2) as env:
        gone = verify(env, "a")
        await until(lambda: len(env.author._cohorts._running) == 1)
        gone.cancel()
        assert await rewards(verify(env, "b")) == [1.0]


async def test_a_group_of_one_is_not_compared():
    async with compare(Model({}), 1, default_score=2.0) as env:
        assert await rewards(verify(env, "a")) == [2.0]


def test_more_than_one_process_is_refused():
    with pytest.raises(gymq.OptionsError, match=r"num_workers.*one process"):
        GenRMCompare(MODEL | {"num_workers": 2})


@pytest.mark.parametrize("options", [{"comparison_strategy": "knockout"}, {"aggregator_method": "elo"}])
def test_unknown_ways_of_comparing_are_refused(options):
    with pytest.raises(gymq.OptionsError, match=next(iter(options))):
        GenRMCompare(MODEL | options)


# The reward model -----------------------------------------------------------------------------------------------------


def out_of_memory(*pairs: str) -> Callable[[str], Awaitable[None]]:
    async def before(pair: str) -> None:
        if pair in pairs:
            raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "out of memory")

    return before


async def test_a_comparison_that_failed_is_neutral_and_is_counted():
    model = Model(SCORES, out_of_memory("ab"))
    async with compare(model, 3) as env:
        verdicts = [verify(env, said) for said in "abc"]
        assert await rewards(*verdicts) == [3.5, 2.5, 3.0]
        assert (await verdicts[2]).fields["num_failed_comparisons"] == 1
    assert sorted(model.asked) == ["ab", "bc", "ca"]  # it is not asked again


async def test_a_group_that_nobody_judged_has_no_rewards_and_can_be_judged_again():
    down = True

    async def before(_pair: str) -> None:
        if down:
            raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "out of memory")

    async with compare(Model({"ab": (5, 1, 1), "ba": (1, 5, 6)}, before), 2) as env:
        for verdict in [verify(env, "a", rollout="run/0/0"), verify(env, "b", rollout="run/0/1")]:
            with pytest.raises(gymq.JudgeFailed, match="any of 2 comparisons"):
                await verdict
        down = False
        again = [verify(env, "a", rollout="run/0/0"), verify(env, "b", rollout="run/0/1")]
        assert await rewards(*again) == [5.0, 1.0]


async def test_an_error_in_a_comparison_reaches_all_members():
    async def before(pair: str) -> None:
        if pair == "ba":
            raise KeyError("a bug")

    async with compare(Model({"ab": (5, 1, 1)}, before), 2) as env:
        for verdict in [verify(env, "a"), verify(env, "b")]:
            with pytest.raises(gymq.RolloutError) as raised:
                await verdict
            assert raised.value.failure_class is gymq.FailureClass.VERIFIER_FAILED


async def test_the_model_is_sent_conversation_answers_and_principle():
    seen: list[dict[str, Any]] = []

    async def answer(_model: str, params: dict[str, Any]) -> dict[str, Any]:
        seen.append(params)
        return reply('{"score_1": 3}')

    given = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Name "}, {"type": "input_text", "text": "one."}]},
    ]
    content = {"responses_create_params": {"input": given}, "principle": ""}
    options = {"use_principle": True, "default_principle": "Be right.", "genrm_responses_create_params": {"top_p": 0.5}}
    async with compare(ScriptedModel(answer), 2, **options) as env:
        await rewards(verify(env, "a {b}", content), verify(env, " \n", content))
    assert seen[0] == {
        "top_p": 0.5,
        "input": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Name one."}],
        "metadata": {"response_1": "a {b}", "response_2": "None", "principle": "Be right."},
    }


# The tool -------------------------------------------------------------------------------------------------------------


def said(text: str) -> dict[str, Any]:
    return {"output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}


@pytest.mark.parametrize(("texts", "expected"), [([], []), (["a"], [3.0])])
async def test_too_few_answers_are_not_compared(texts, expected):
    async with compare(Model({}), 1) as env:
        arguments = {"conversation_history": [], "response_objs": [said(text) for text in texts]}
        result = await (await env.session(row())).call("compare", arguments)
    assert json.loads(result.output) == {"rewards": expected, "comparison_results": None, "metrics": None}


async def test_the_first_judge_of_all_pairs_comes_before_the_second():
    async with compare(Model(SCORES), 1, num_judges_per_comparison=2) as env:
        arguments = {"conversation_history": [], "response_objs": [said(text) for text in "abc"]}
        result = await (await env.session(row())).call("compare", arguments)
    found = json.loads(result.output)["comparison_results"]
    order = [(one["judge_idx"], one["response_i"], one["response_j"]) for one in found]
    assert order == [(0, 0, 1), (0, 1, 2), (0, 2, 0), (1, 0, 1), (1, 1, 2), (1, 2, 0)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"response_objs": []},
        {"conversation_history": [], "response_objs": [{}]},
        {"conversation_history": [{"role": "user", "content": 5}], "response_objs": [said("a"), said("b")]},
    ],
)
async def test_arguments_that_do_not_fit_are_refused(arguments):
    async with compare(Model({}), 1) as env:
        assert (await (await env.session(row())).call("compare", arguments)).status == 422
