"""Read groups as ART does, and print what it would train on; needs ART and numpy alone.

The standard input has groups as JSON, the first argument is the name of the model.
"""

import json
import sys
from typing import Any

import art
from art.trajectories import TokenFlag


def read(group: Any, model: str) -> dict[str, Any]:
    found = art.TrajectoryGroup.model_validate(group)
    tokenized = found.tokenize(model=model, multi_history=True)
    return {
        "rewards": [trajectory.reward for trajectory in found],
        "metrics": [trajectory.metrics for trajectory in found],
        "exceptions": [[one.type, one.message] for one in found.exceptions],
        "histories": [
            [
                {
                    "tokens": history.tokens,
                    "sampled": [int(bool(flag & TokenFlag.SAMPLED)) for flag in history.flags],
                    "exact": all(flag & TokenFlag.EXACT for flag in history.flags),
                    "log_probs": [
                        log_prob if flag & TokenFlag.SAMPLED else 0.0
                        for log_prob, flag in zip(history.logprobs, history.flags, strict=True)
                    ],
                }
                for history in trajectory.histories
            ]
            for trajectory in tokenized.trajectories
        ],
    }


print(json.dumps([read(group, sys.argv[1]) for group in json.load(sys.stdin)]))
