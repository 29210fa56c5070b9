"""What was asked and expected in a rollout.

Rows and verdicts are of their authors, who name fields as they like; what is found by its name is a convention.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gymq.data.rows import AGENT_REF, PARAMS

_USUAL = ("expected_answer", "answer", "ground_truth", "expected", "target", "label", "solution")
_EXPECTED = re.compile(r"(expected|ground_truth|gold|target|reference|correct)(_|$)|(answers?|solution|label|sql)$")
_NESTED = ("verifier_metadata", "template_metadata", "info", "metadata")


def own_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row that are there for its environment."""
    return {
        name: value for name, value in row.items() if name not in (PARAMS, AGENT_REF) and not name.startswith("_ng_")
    }


def params_of(row: Mapping[str, Any], verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the model calls; of a program that has prompts of its own the verdict has them."""
    params = verdict.get(PARAMS, row.get(PARAMS))
    return params if isinstance(params, dict) else {}


def prompt_of(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a request's input."""
    given = params.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)


def expected_of(row: Mapping[str, Any], verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, by name, that say what was expected; those with the most usual names come first."""
    fields = own_fields(row)
    nested = [fields[name] for name in _NESTED if isinstance(fields.get(name), dict)]
    found: dict[str, Any] = {}
    for source in (fields, *nested, verdict):
        found |= {
            name: value
            for name, value in source.items()
            if (name in _USUAL or (_EXPECTED.match(name) and not isinstance(value, bool)))
            and value is not None
            and name not in found
        }
    usual = {name: found[name] for name in _USUAL if name in found}
    return usual | found


def as_object(value: object) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list that may hold anything, since a failed row was never checked."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, Sequence) else []
