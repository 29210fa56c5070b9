"""Prompt templates: the user and system message of a task, filled from the fields of its row."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from gymq.authoring import first_problem
from gymq.data.rows import RowError
from gymq.errors import UsageError

_FIELD = re.compile(r"(?P<member>[^.\[\]]+)(?P<keys>(?:\[[^\[\]]+\])*)")
_KEY = re.compile(r"\[([^\[\]]+)\]")


class RowPrompt(BaseModel):
    """Texts with Python format fields: `{question}`, `{choices[0]}`, `{score:.2f}`; `{{` and `}}` are braces.

    They name fields of the row, reach into JSON objects and arrays with `[key]`, and never read attributes.
    """

    model_config = ConfigDict(frozen=True)

    user: str
    system: str | None = None

    @field_validator("user", "system")
    @classmethod
    def _is_a_template(cls, text: str | None) -> str | None:
        for _ in string.Formatter().parse(text or ""):
            pass
        return text

    @classmethod
    def from_yaml(cls, text: str, source_name: str) -> RowPrompt:
        """Read a template from the text of a YAML file with `user` and, optionally, `system`.

        Raises:
            UsageError: the text is not such a file.
        """
        try:
            return cls.model_validate(yaml.safe_load(text))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{source_name}:{mark.line + 1}" if mark else source_name
            reason = getattr(error, "problem", None) or "it cannot be parsed"
            raise UsageError(f"{where}: the prompt template is not valid YAML: {reason}") from None
        except ValidationError as error:
            form = "a mapping with the text `user` and optionally the text `system`"
            raise UsageError(f"{source_name}: the prompt template must be {form}; {first_problem(error)}") from None
        except (ValueError, LookupError, AttributeError, RecursionError) as error:  # such as of `!!int abc`
            problem = "a value of the prompt template is not what it looks like"
            raise UsageError(f"{source_name}: {problem}: {error}") from None

    def messages(self, row: Mapping[str, msgspec.Raw]) -> list[dict[str, str]]:
        """Return the messages of a row, system first.

        Raises:
            RowError: the row lacks a field that the template names, or the template cannot be filled in.
        """
        messages = [{"role": "system", "content": _fill(self.system, row)}] if self.system is not None else []
        return [*messages, {"role": "user", "content": _fill(self.user, row)}]


def _fill(template: str, row: Mapping[str, msgspec.Raw]) -> str:
    try:
        return _RowFormatter().vformat(template, (), row)
    except RowError:
        raise
    except (ValueError, TypeError, LookupError) as error:
        raise RowError(f"the prompt template cannot be filled from the row: {error}") from None


class _RowFormatter(string.Formatter):
    """Formats values of a row's JSON; the standard formatter would also read their attributes."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        parts = _FIELD.fullmatch(field_name)
        if parts is None:
            raise RowError(
                f"the prompt template has the field {{{field_name}}}; it must be a field of the row, "
                "followed by [keys] for an object or an array"
            )
        field = parts["member"]
        if field not in kwargs:
            raise RowError(f"the prompt template names the field {field!r}, but the row only has {sorted(kwargs)}")
        value = msgspec.json.decode(kwargs[field])
        for key in _KEY.findall(parts["keys"]):
            value = _item(value, key, field_name)
        return value, field


def _item(value: Any, key: str, field_name: str) -> Any:
    if isinstance(value, dict) and key in value:
        return value[key]
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    raise RowError(f"the prompt template has the field {{{field_name}}}, but the row has nothing at [{key}]")
