"""Token ids of rollouts with several turns, from the model through the store to the files."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from gymq.workers.resources.example_session_state_mgmt import worker as counting

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.launch import Cluster
from gymq.data.jsonl import JsonlFile
from gymq.data.materialise import MaterialiseOptions
from gymq.defaults import TokenForm
from gymq.protocol.instances import Instance
from gymq.protocol.messages import VerifiedRollout
from gymq.protocol.token_forms import with_whole_prompts
from gymq.protocol.tokens import ContinuedPrompt
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan

TURNS = 6


def row() -> dict[str, Any]:
    add = {"call": {"name": "increment_counter", "arguments": {"count": 1}}}
    script = [[add]] * (TURNS - 1) + [[{"text": "done"}]]
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    return {
        "responses_create_params": {
            "input": "Count.",
            "tools": [{"type": "function", "name": "increment_counter", "parameters": schema, "strict": False}],
            "metadata": {"simulated_solution": json.dumps(script)},
        },
        "initial_count": 0,
        "expected_count": TURNS - 1,
    }


async def collect(bus: Bus, folder: Path, form: TokenForm) -> tuple[Collection, dict[str, Any]]:
    """The one line of a collection."""
    data = folder / "rows.jsonl"
    data.write_text(json.dumps(row()) + "\n")
    materialise = MaterialiseOptions(agent_name="agent", num_repeats=1)
    collection = Collection(bus, RunPlan(CollectOptions(data, folder / f"{form}.jsonl", materialise, token_ids=form)))
    await collection.run()
    (line,) = JsonlFile(collection.files.output)
    return collection, json.loads(line)


def prompts(response: dict[str, Any]) -> list[list[int]]:
    return [list(item["prompt_token_ids"]) for item in response["output"] if "prompt_token_ids" in item]


async def test_a_file_has_the_tokens_in_the_form_that_was_asked_for(tmp_path: Path) -> None:
    references = {
        "resources_server": {"type": "resources_servers", "name": "counter"},
        "model_server": {"type": "responses_api_models", "name": "policy"},
    }
    instances = [
        Instance("policy", "models", "simulated_model", {"skill": 1.0, "token_ids": True}),
        Instance("counter", "resources", str(counting.__file__)),
        Instance("agent", "agents", "simple_agent", references),
    ]
    async with Cluster(instances, folder=tmp_path) as cluster:
        bus = await Bus.connect(cluster.url, role="test", name="test")
        _, full = await collect(bus, tmp_path, "full")
        collection, chain = await collect(bus, tmp_path, "chain")
        _, none = await collect(bus, tmp_path, "none")
        stored = [outcome async for _, outcome in OutcomeStore(bus).read(collection.progress.run)]
        await bus.close()
    assert [line["reward"] for line in (full, chain, none)] == [1.0] * 3

    whole = prompts(full["response"])
    assert len(whole) == TURNS
    assert all(after[: len(before)] == before for before, after in pairwise(whole))
    assert not any("generation_token_ids" in item for item in none["response"]["output"])

    (outcome,) = stored
    assert isinstance(outcome, VerifiedRollout)
    kinds = [isinstance(item["prompt_token_ids"], ContinuedPrompt) for item in outcome.response["output"][::2]]
    assert kinds == [False] + [True] * (TURNS - 1)
    assert len(prompts(chain["response"])) == 1
    assert prompts(with_whole_prompts(chain["response"])) == prompts(outcome.response)
