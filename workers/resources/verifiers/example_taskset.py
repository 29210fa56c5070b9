"""A taskset of verifiers that needs no network: sums, with a tool that adds."""

from __future__ import annotations

import verifiers.v1 as vf

__all__ = ["SumTaskset"]

SUMS = [(3, 4), (17, 25), (120, 81), (9, 9), (256, 512)]


class Adder(vf.Toolset[vf.ToolsetConfig]):
    """A server of tools, in a process that all rollouts share; one for each would take seconds to start."""

    TOOL_PREFIX = "adder"

    @vf.tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def is_right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.metric
    async def num_tool_calls(self, trace: vf.Trace) -> float:
        return float(sum(len(message.tool_calls or ()) for message in trace.messages if message.role == "assistant"))


class SumsConfig(vf.TasksetConfig):
    task: vf.TaskConfig = vf.TaskConfig()
    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class SumTaskset(vf.Taskset[SumTask, SumsConfig]):
    @classmethod
    def toolsets(cls, config: SumsConfig) -> list[vf.Toolset]:
        return [Adder(config.tools)]

    def load(self) -> list[SumTask]:
        return [
            SumTask(SumData(prompt=f"{a} + {b} = ? Reply with the number only.", answer=str(a + b)), self.config.task)
            for a, b in SUMS
        ]


if __name__ == "__main__":
    Adder.run()
