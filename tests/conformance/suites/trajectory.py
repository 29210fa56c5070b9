"""Captured model calls as chains of tokens, and the main chain as a Responses object."""

from typing import Any

import pytest

from gymq.data.records import NotTrainable
from gymq.responses import ResponsesError

from ..refused import Refused

of_gateway = pytest.importorskip("gymq.ext.gateway.chains")

MODEL = "m"
"""The name of the model in the recorded responses."""


async def run(case_input: dict[str, Any]) -> dict[str, Any]:
    try:
        built = of_gateway.build_chains(case_input["entries"], **_given(case_input, "builder"))
    except ResponsesError as error:
        raise Refused(str(error)) from None
    chains = [
        {
            "chain_id": chain.chain_id,
            "root_prompt": chain.root_prompt,
            "links": [{"call": link.call.model_call_id, "interstitial": link.interstitial} for link in chain.links],
        }
        for chain in sorted(built.chains, key=lambda chain: chain.chain_id)
    ]
    answer = {"chains": chains, "quarantined": built.quarantined, "notes": built.notes}
    try:
        return answer | {"response": of_gateway.project_response(built, MODEL)}
    except NotTrainable as error:
        return answer | {"response_error": str(error)}


def normalise(answer: dict[str, Any]) -> dict[str, Any]:
    """The reason why there is no response is ours to word."""
    return answer | {"response_error": "a text"} if isinstance(answer.get("response_error"), str) else answer


def _given(case_input: dict[str, Any], name: str) -> dict[str, Any]:
    return {name: case_input[name]} if case_input.get(name) is not None else {}
