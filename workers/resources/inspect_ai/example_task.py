"""Tasks of Inspect that need no network: sums with a tool that adds, and the same with a model that grades."""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match, model_graded_qa
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import Tool, tool

SUMS = [(3, 4), (17, 25), (120, 81), (9, 9), (256, 512)]
SAMPLES = [Sample(input=f"{a} + {b} = ?", target=str(a + b)) for a, b in SUMS]


@tool
def add() -> Tool:
    """Make the tool."""

    async def execute(a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: first number.
            b: second number.
        """
        return str(a + b)

    return execute


@task
def sums() -> Task:
    """Return the sums; the answer is matched."""
    return Task(
        dataset=SAMPLES,
        solver=[system_message("Reply with the number only."), use_tools(add()), generate()],
        scorer=match(numeric=True),
        message_limit=20,
    )


@task
def graded_sums() -> Task:
    """Return the sums; a model grades the answer."""
    return Task(dataset=SAMPLES, solver=generate(), scorer=model_graded_qa())
