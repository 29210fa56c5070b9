"""Statistics of a run: the reward profile, pass@k and its relatives, a worker's aggregate."""

from typing import Any

from gymq.aggregate import aggregate
from gymq.passk import MetricError, accuracy, highest_k, member_scores, pass_at_k_metrics, subset_metrics
from gymq.profile import ProfileError, profile

from ..refused import Refused


async def run(case_input: dict[str, Any]) -> dict[str, Any]:
    operations = {"profile": _profile, "passk": _pass_at_k, "subset": _subset, "aggregate": _aggregate}
    try:
        return operations[case_input["op"]](case_input)
    except (MetricError, ProfileError) as error:
        raise Refused(str(error)) from None


def _profile(case_input: dict[str, Any]) -> dict[str, Any]:
    found = profile(case_input["rows"], case_input["results"], case_input.get("allow_partial", False))
    return {"groups": found.groups, "agents": found.agents}


def _pass_at_k(case_input: dict[str, Any]) -> dict[str, Any]:
    found = pass_at_k_metrics(
        case_input["tasks"],
        scores=_scores(case_input),
        answer_key=case_input.get("answer_key"),
        sample_std_dev=case_input.get("sample_std", False),
    )
    answer = {"metrics": found.metrics, "score_names": found.score_names, "max_k": found.max_k}
    if case_input.get("highest"):
        answer["highest"] = highest_k(found.metrics, **case_input["highest"])
    return answer


def _subset(case_input: dict[str, Any]) -> dict[str, Any]:
    return subset_metrics(
        case_input["tasks"],
        case_input["subset_key"],
        scores=_scores(case_input),
        answer_key=case_input.get("answer_key"),
    )


def _aggregate(case_input: dict[str, Any]) -> dict[str, Any]:
    return aggregate(case_input["verify_responses"])._asdict()


def _scores(case_input: dict[str, Any]) -> Any:
    names = case_input.get("scores")
    return accuracy if names is None else member_scores(names)
