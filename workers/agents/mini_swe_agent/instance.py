"""An instance of SWE-bench, as an agent sees it."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec
import pydantic

from gymq import responses
from gymq.failures import InvalidTask
from gymq.sandbox import check_path


def _check_template(template: str) -> str:
    try:
        template.format(instance_id="")
    except (AttributeError, LookupError, ValueError):
        raise ValueError("expected {instance_id}, and no other word in braces") from None
    return template


ImageTemplate = Annotated[str, pydantic.AfterValidator(_check_template)]
"""Name or path of images, with `{instance_id}` in it."""


class Instance(msgspec.Struct):
    """What an agent reads of an instance; the rest is the verifier's."""

    instance_id: str
    problem_statement: str
    patch: str = ""  # the reference
    image: str | None = None

    def __post_init__(self) -> None:
        check_path(f"/{self.instance_id}")  # it becomes part of paths

    def image_of(self, template: str | None) -> str:
        """Return the container image: by the template, the row's own, or that of SWE-bench with this id.

        Raises:
            InvalidTask: the row's is a folder of this machine, which Apptainer would show to the program.
        """
        if template is not None:
            return template.format(instance_id=self.instance_id)
        if self.image is not None and _is_path(self.image) and os.path.isdir(self.image):
            raise InvalidTask(f"image: {self.image!r} is a folder of this machine; name an image")
        return self.image or f"swebench/sweb.eval.x86_64.{self.instance_id.replace('__', '_1776_')}:latest".lower()

    def reference(self) -> dict[str, Any]:
        """Return a response that ends with the reference patch, without a model.

        Raises:
            InvalidTask: the row has none.
        """
        if not self.patch:
            raise InvalidTask(f"the row of {self.instance_id} has no patch to submit")
        return responses.response_without_model("golden", [responses.user_message(self.patch)])


def _is_path(image: str) -> bool:
    """Return whether an image can only be a path: names of images may be those of folders, too."""
    parts = image.split("/")
    return parts[0] in ("", ".") or ".." in parts
