"""Prompts for a judge: templates with named placeholders."""

from __future__ import annotations

import re
import secrets
import string
from pathlib import Path

from gymq.authoring import OptionsError

_TAG = re.compile(r"(</?)([A-Za-z]\w*)>")
_SECTION = re.compile(r"<([A-Za-z]\w*)>(?=[^<{]*\{\w+\}[^<]*</\1>)")
_ENDING = re.compile(r"_[0-9a-f]{8}>")


class PromptTemplate:
    """A text with named placeholders such as `{question}`. Doubled braces stand for single ones.

    Only the template is searched for placeholders: what is filled in may hold any braces. A section around a
    placeholder, such as `<reply>{reply}</reply>`, has another name in each text, so that nothing in it can end it.
    """

    def __init__(self, text: str, *fields: str) -> None:
        """Parse the text of a template.

        Args:
            text: the template.
            fields: the placeholders that may occur.

        Raises:
            ValueError: there is another placeholder, or an unmatched brace.
        """
        known = ", ".join(f"{{{field}}}" for field in fields)
        try:
            parsed = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"the template has a mistake in its braces: {error}; placeholders are {known}") from None
        for _, name, form, conversion in parsed:
            if name is not None and (name not in fields or form or conversion):
                raise ValueError(f"the template has the placeholder {{{name}}}; known are {known}, as they stand")
        self._text = text
        self._sections = set(_SECTION.findall(text))

    def fill(self, **values: str) -> str:
        """Return the text with the values filled in."""
        ending = secrets.token_hex(4)
        text = _TAG.sub(lambda tag: self._tag(tag, ending), self._text)
        return text.format(**values)

    def _tag(self, tag: re.Match[str], ending: str) -> str:
        return f"{tag[1]}{tag[2]}_{ending}>" if tag[2] in self._sections else tag[0]


def without_endings(text: str) -> str:
    """Return a filled template with the names of its sections as the template has them."""
    return _ENDING.sub(">", text)


def literal(text: str) -> str:
    """Escape a text for use in a template: double its braces."""
    return text.replace("{", "{{").replace("}", "}}")


def chosen_template(
    worker: str, inline: str | None, file: str | None, default: str, *fields: str, **labels: str
) -> PromptTemplate:
    """Return the template given as text, or else the one in a file, or else the default.

    Args:
        labels: put into the default, which then is a template of the template.

    Raises:
        OptionsError: both are given, the file cannot be read, or the template does not fit.
    """
    if inline is not None and file is not None:
        raise OptionsError(f"{worker}: give the judge's prompt template as text or as a file, not both")
    if labels:
        default = default.format(**{name: literal(label) for name, label in labels.items()})
    try:
        text = Path(file).read_text(encoding="utf-8") if file is not None else default if inline is None else inline
        return PromptTemplate(text, *fields)
    except (OSError, ValueError) as error:
        where = "judge_prompt_template" if file is None else f"judge_prompt_template_fpath {file}"
        raise OptionsError(f"{worker}: {where}: {error}") from None
