"""Rows whose own solution was played and did not earn the full reward: the row, or its verifier, has a mistake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gymq.config.assembled import SIMULATED_MODEL
from gymq.data.jsonl import JsonlFile
from gymq.data.rows import AGENT_REF, PARAMS, TASK_INDEX, agent_name
from gymq.data.solutions import SOLUTION, is_played, read_solution
from gymq.render import counted
from gymq.runs.collection.plan import RunPlan


class _Row(msgspec.Struct):
    task_index: int = msgspec.field(name=TASK_INDEX)
    params: dict[str, Any] = msgspec.field(name=PARAMS)
    agent_ref: msgspec.Raw = msgspec.field(name=AGENT_REF)
    response: dict[str, Any]
    reward: float


NOTHING_TO_PLAY = (
    f"no row has a `{SOLUTION}`, so {SIMULATED_MODEL} answered with made-up text: these rewards say nothing about the "
    "environment; give rows their solutions, or a model with --model-url"
)


def nothing_to_play(plan: RunPlan) -> bool:
    """Return whether the policy was only the simulated model, and no row had a solution for it."""
    if not plan.models or not all(SIMULATED_MODEL in model for model in plan.models):
        return False
    output = plan.files.output
    lines = iter(JsonlFile(output)) if output.exists() else iter(())
    return (first := next(lines, None)) is not None and not any(SOLUTION.encode() in line for line in (first, *lines))


def unsolved_rows(plan: RunPlan) -> list[str]:
    """Return a sentence for each row of a run whose own solution earned less than the full reward, in order.

    The output is read if the policy is simulated.
    """
    if not any(SIMULATED_MODEL in model for model in plan.models):
        return []
    earned: dict[str, dict[int, float]] = {}  # by agent and task
    for line in JsonlFile(plan.files.output):
        if SOLUTION.encode() not in line:
            continue
        row = msgspec.json.decode(line, type=_Row)
        try:
            solution = read_solution(row.params)
        except (msgspec.MsgspecError, RecursionError):
            continue  # the simulated model, which is to play it, has said so
        if solution is not None and is_played(solution, row.response["output"]):
            earned.setdefault(agent_name(row.agent_ref), {})[row.task_index] = row.reward
    unsolved: dict[int, str] = {}
    for agent, rewards in earned.items():
        full = plan.verifiers.full_reward(agent)
        if full > 1:  # often a bound that no row reaches
            full = max(1.0, *rewards.values())
        for task_index, reward in rewards.items():
            if reward < full:
                unsolved[task_index] = f"its own {SOLUTION} earned {reward:g}, not {full:g}"
    return [f"{place}: {problem}" for place, problem in _placed(plan, unsolved)]


def _placed(plan: RunPlan, problems: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Yield problems of tasks with file and line of their rows, which are read again for that."""
    if not problems:
        return
    with plan.rows() as rows:
        for row in rows:
            if (problem := problems.pop(row.task_index, None)) is not None:
                yield plan.dataset.place(row.line_number), problem


def shown_unsolved(sentences: list[str]) -> str:
    """Return text about rows that `unsolved_rows` found, which there are."""
    lines = sentences[:5]
    if len(sentences) > len(lines):
        lines.append(f"and {len(sentences) - len(lines):,} more")
    head = f"the solutions of {counted(len(sentences), 'row')} earned less than the full reward; "
    named = "".join(f"\n  {line}" for line in lines)
    return f"{head}correct the rows or the verifier:{named}"
