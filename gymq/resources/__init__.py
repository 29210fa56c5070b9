"""Resources: environments as an author writes them, with tools, state and a verifier.

`TextEnvironment` and `AskingEnvironment` are in modules of their own, which `gymq` loads on first use.
"""

from gymq.resources.resources import Environment, ModelCaller, Need, Resources, awaited
from gymq.resources.row import Row, RowsWanted, RowT
from gymq.resources.tools import Tool, tool, tool_output
from gymq.resources.verdict import Judged, Verdict, VerifyRequest

__all__ = [
    "Environment",
    "Judged",
    "ModelCaller",
    "Need",
    "Resources",
    "Row",
    "RowT",
    "RowsWanted",
    "Tool",
    "Verdict",
    "VerifyRequest",
    "awaited",
    "tool",
    "tool_output",
]
