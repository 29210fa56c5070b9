"""A stored run in the forms of other programs: trajectories in ATIF, results and traces of verifiers."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from gymq.data.failure_status import StatusError
from gymq.data.jsonl import JsonlError
from gymq.data.trainer_results import result_fields
from gymq.protocol.messages import Outcome, VerifiedRollout
from gymq.protocol.tokens import to_json
from gymq.responses import ResponsesError
from gymq.runs.export.files import ConvertedFile
from gymq.runs.foreign.atif import write_atif
from gymq.runs.foreign.verifiers_results import write_verifiers
from gymq.runs.foreign.verifiers_traces import episode_of, task_of, trace_of
from gymq.runs.outcome_fields import own_fields, params_of, prompt_of, row_of

TrajectoryForm = Literal["atif", "verifiers", "verifiers-traces"]


class TrajectoryFile(ConvertedFile):
    """Writes the verified rollouts of a run, one JSON object a line."""

    def __init__(self, output: Path, form: TrajectoryForm) -> None:
        super().__init__(output)
        self._form = form
        self._version = version("gymq")

    def add(self, outcome: Outcome) -> None:
        """Add an outcome; failures are not written."""
        if not isinstance(outcome, VerifiedRollout):
            return
        try:
            made = to_json(self._made(outcome))
        except (JsonlError, ResponsesError, StatusError):
            self.num_left_out += 1
            return
        self._put(made)

    def _made(self, outcome: VerifiedRollout) -> dict[str, Any]:
        if self._form == "atif":
            return self._atif(outcome)
        return _verifiers(outcome) if self._form == "verifiers" else _verifiers_episode(outcome)

    def _atif(self, outcome: VerifiedRollout) -> dict[str, Any]:
        row = row_of(outcome)
        params = params_of(row, outcome.verdict)
        ours = {
            "run": outcome.run,
            "task_index": outcome.task_index,
            "rollout_index": outcome.rollout_index,
            "agent": outcome.agent,
            "reward": outcome.reward,
            "row": own_fields(row),
            "verdict": {name: value for name, value in outcome.verdict.items() if name != "responses_create_params"},
            "tools": [tool for tool in params.get("tools") or () if isinstance(tool, dict)],
        }
        return write_atif(
            session=str(outcome.rollout_id),
            agent=outcome.agent,
            version=self._version,
            prompt=prompt_of(params),
            response=outcome.response,
            ours=ours,
        )


def _verifiers(outcome: VerifiedRollout) -> dict[str, Any]:
    row = row_of(outcome)
    return write_verifiers(
        example=outcome.task_index,
        task=outcome.agent,
        prompt=prompt_of(params_of(row, outcome.verdict)),
        response=outcome.response,
        reward=outcome.reward,
        row=own_fields(row),
        verdict=outcome.verdict,
    )


def _verifiers_episode(outcome: VerifiedRollout) -> dict[str, Any]:
    result = result_fields(outcome, "allow")
    task = task_of({"idx": outcome.task_index, "row": outcome.row.decode()})
    agent = {"model": outcome.response.get("model")}
    ended_at = float(outcome.response.get("created_at") or 0.0)
    trace = trace_of(result, task, agent, ended_at - outcome.duration_s, ended_at)
    return episode_of(task) | {"ok": True, "traces": [trace]}
