"""Short rows: a prompt as a field of the row, in place of `responses_create_params.input`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gymq.data.jsonl import parse_object
from gymq.data.prompt import RowPrompt
from gymq.data.rows import PARAMS, SOURCE, RowError, shown

PROMPTS = ("prompt", "question", "input", "messages")
"""Fields that may hold the prompt; of several, the first."""

SCRIPTS = ("simulated_solution", "simulated_mistake")
"""Fields with what `simulated_model` answers, which finds them in the metadata of the request."""

Fields = dict[str, Any]
"""Fields of a row: the JSON text of the input, or a value that replaces it."""

NULL = msgspec.Raw(b"null")


def complete_params(
    fields: Fields, template: RowPrompt | None = None, prompt_field: str | None = None, remedy: str = ""
) -> Fields:
    """Return the create parameters of a row with their `input`, and put them into the row.

    The field that has the prompt remains a field of the row. Parameters that have an `input` keep it. `SCRIPTS` are
    moved into the metadata.

    Args:
        template: makes the prompt of each row, which must then have none.
        prompt_field: name of the field with the prompt; None: the first of `PROMPTS` that the row has.
        remedy: the end of the message about a row without a prompt: how to name another field.

    Raises:
        RowError: the row has no prompt, has one although it is to be made, or a field is of the wrong type, or the
            template does not fit the row.
    """
    params = as_object(fields[PARAMS], PARAMS) if PARAMS in fields else {}
    made = _made_input(fields, params, template, prompt_field, remedy)
    scripts = {name: fields.pop(name) for name in SCRIPTS if name in fields}
    given = {name: _script(value, name) for name, value in scripts.items() if value != NULL}
    if given:
        metadata = params.get("metadata", NULL)
        params["metadata"] = ({} if metadata == NULL else as_object(metadata, f"{PARAMS}.metadata")) | given
    if made is not None:
        params["input"] = made
    if given or made is not None:
        fields[PARAMS] = params
    return params


def _made_input(
    fields: Fields, params: Fields, template: RowPrompt | None, prompt_field: str | None, remedy: str
) -> Any:
    """Return the input of the request, made from other fields; None if the parameters stay as they are."""
    is_named = template is not None or prompt_field is not None
    if "input" in params and not (is_named and not msgspec.json.decode(params["input"])):
        if is_named:
            made_from = "template" if template is not None else "field"
            raise RowError(f"the row already has `{PARAMS}.input`, so no prompt {made_from} can be used")
        return None
    if template is not None:
        return template.messages(fields)
    name = _prompt_of(fields, PROMPTS if prompt_field is None else (prompt_field,))
    if name is not None:
        return _checked(fields[name], name)
    if PARAMS in fields and not is_named:
        return None  # as NeMo Gym has it; what the parameters need is checked with the row
    missing = "prompt" if prompt_field is None else f"field {prompt_field!r}"
    own = [name for name in fields if name != SOURCE]
    raise RowError(f"the row has no {missing}: its fields are {_listed(own)}{remedy}")


def whole_row(line: bytes, prompt_field: str | None = None, remedy: str = "") -> bytes:
    """Return the text of a row, with its prompt in `responses_create_params`; the arguments as for `complete_params`.

    Raises:
        JsonlError, RowError: the line is not a row; the message does not name the line.
    """
    fields: Fields = dict(parse_object(line))
    complete_params(fields, None, prompt_field, remedy)
    return msgspec.json.encode(fields)


def as_object(value: Any, place: str) -> Fields:
    """Return the fields of a JSON object.

    Raises:
        RowError: it is something else.
    """
    try:
        return dict(msgspec.json.decode(value, type=dict[str, msgspec.Raw]))
    except msgspec.MsgspecError:
        raise RowError(f"`{place}` must be an object, not {shown(value)}") from None


def _prompt_of(fields: Fields, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in fields and fields[name] != NULL), None)


def _checked(value: msgspec.Raw, name: str) -> msgspec.Raw:
    decoded = msgspec.json.decode(value)
    if not isinstance(decoded, str | list):
        raise RowError(f"`{name}` must be a text or a list of messages, not {shown(value)}")
    if not decoded:
        raise RowError(f"`{name}` is empty, and should be what the model is asked")
    return value


def _script(value: msgspec.Raw, name: str) -> str:
    """Return a script as `simulated_model` reads it: the JSON text of a list of turns, each a list of actions."""
    given = msgspec.json.decode(value)
    if not isinstance(given, str | list):
        raise RowError(f"`{name}` must be a text or a list of turns, not {shown(value)}")
    turns = [given] if isinstance(given, str) else given
    script = [
        [{"text": turn}] if isinstance(turn, str) else [turn] if isinstance(turn, dict) else turn for turn in turns
    ]
    return msgspec.json.encode(script).decode()


def _listed(names: list[str]) -> str:
    if not names:
        return "none"
    shown = names[:12]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(name[:60] for name in shown) + more
