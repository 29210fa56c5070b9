"""structeval: the reply has to hold JSON, YAML, TOML, XML or CSV with the wanted keys. Values are not judged."""

from __future__ import annotations

from gymq.workers.resources.structeval.scoring import Scores, prepare, scores_of

import gymq
from gymq.authoring import check_installed
from gymq.processes import ComputeLimits, CpuTimeUsedUp

LIBRARIES = ("toml", "xmltodict")


class StructureRow(gymq.Row):
    task_id: str
    task_name: str
    input_type: str
    output_type: str  # in any case
    raw_output_metric: list[str]  # the paths that the data should have
    rendering: bool = False


class StructEval(gymq.Resources[StructureRow]):
    """Reward 0.2 if the reply's code can be parsed, and 0.8 times the share of the wanted paths that it has."""

    reward_range = (0.0, 1.0)
    # A short text can keep a parser busy for long; that counts against the reply.
    compute_limits = ComputeLimits(cpu_s=20.0, timeout_s=400.0, max_memory_bytes=4 * 1024**3, prepare=prepare)

    async def start(self) -> None:
        check_installed("resources", *LIBRARIES)

    async def verify(self, request: gymq.VerifyRequest[StructureRow]) -> gymq.Verdict:
        scores = await self._scores(request.reply_text, request.row)
        return gymq.Verdict(scores.reward, rendering=request.row.rendering, **scores._asdict())

    async def _scores(self, reply: str, row: StructureRow) -> Scores:
        if not reply.strip():
            return Scores(error_type="empty_response", error_message="the reply has no text")
        try:
            return await self.compute(scores_of, reply, row.output_type.lower(), row.raw_output_metric)
        except (CpuTimeUsedUp, MemoryError):
            return Scores(
                error_type="parse_error", error_message="the reply takes too long to parse, or too much memory"
            )
