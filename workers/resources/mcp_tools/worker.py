"""mcp_tools: the tools of MCP servers, and tasks that are solved when these tools show so.

What counts is what the servers say after the rollout, asked with calls of the verifier's own, and the last text of the
model.
"""

from __future__ import annotations

from typing import Any

import pydantic

import gymq
from gymq import responses
from gymq.ext.mcp import McpResources, McpTools


class Expectation(pydantic.BaseModel):
    """What a tool has to answer when the rollout is over."""

    model_config = pydantic.ConfigDict(extra="forbid")

    tool: str
    arguments: dict[str, Any] = {}
    output: str


class ToolRow(gymq.Row):
    expected_state: list[Expectation] = pydantic.Field(default_factory=list)
    expected_answer: str | None = None

    @pydantic.model_validator(mode="after")
    def _check(self) -> ToolRow:
        if not self.expected_state and self.expected_answer is None:
            raise ValueError("a row has expected_state or expected_answer, or both")
        return self


class McpTasks(McpResources[ToolRow]):
    """Reward 1 if the MCP servers answer as expected after the rollout, and the reply is the expected one."""

    reward_range = (0.0, 1.0)

    async def verify(self, request: gymq.VerifyRequest[ToolRow, McpTools]) -> gymq.Verdict:
        row, state = request.row, request.state
        if state is None:
            raise gymq.InvalidTask("the session was not seeded, so there are no servers to ask")
        outputs = [await _output(state, expectation) for expectation in row.expected_state]
        found = [output == expected.output for output, expected in zip(outputs, row.expected_state, strict=True)]
        answer = responses.last_assistant_text(request.response).strip()
        answered = row.expected_answer is None or answer == row.expected_answer.strip()
        return gymq.Verdict(
            float(answered and all(found)),
            extracted_answer=answer,
            answer_matches=answered,
            state_matches=all(found),
            state_outputs=outputs,
        )


async def _output(state: McpTools, expectation: Expectation) -> str | None:
    """Return what the tool answers; None if it answers with an error, as for something that is not there."""
    try:
        return await state.call(expectation.tool, expectation.arguments)
    except gymq.ToolError as error:
        if error.status == 404:
            raise gymq.InvalidTask(f"expected_state: {error.message}") from None
        return None
    except TimeoutError as error:
        raise gymq.ComponentFailed(f"expected_state: {error}") from None
