"""Prompts for judges in YAML files: a text for each role."""

from __future__ import annotations

from pathlib import Path

import pydantic
import yaml

from gymq.authoring import OptionsError, first_problem


class JudgePrompt(pydantic.BaseModel):
    """What a judge is sent: a template of the user's message and perhaps a system message."""

    model_config = pydantic.ConfigDict(extra="forbid")

    user: str
    system: str | None = None


def read_prompt(worker: str, file: str, folder: Path) -> JudgePrompt:
    """Return the prompt in a YAML file with the key `user` and perhaps `system`.

    Args:
        worker: the instance's name, for the error.
        file: its path, from the current folder or else from `folder`.

    Raises:
        OptionsError: it cannot be read, or does not fit.
    """
    path = Path(file) if Path(file).is_file() else folder / file
    try:
        return JudgePrompt.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except pydantic.ValidationError as error:
        problem = first_problem(error)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        problem = str(error)
    raise OptionsError(f"{worker}: the judge's prompt {file}: {problem}")
