"""Reading a whole reply as JSON, YAML, TOML, CSV or XML. Fences and text around it are not part of any of them."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from typing import Any, Literal

import yaml

Format = Literal["json", "yaml", "xml", "toml", "csv"]


def parse(text: str, kind: Format, *, strict_csv: bool = False) -> Any:
    """Return the value that the text writes.

    YAML is version 1.1 without tags. CSV gives a list of objects, named by the first line, of texts. XML gives an
    object with the root element; leaves are texts, attributes members named `@name`, repeated elements lists.

    Args:
        strict_csv: whether a quoted cell of CSV has to end with its quote.

    Raises:
        Exception: whatever the format's library raises on a text that it cannot read.
    """
    match kind:
        case "json":
            return json.loads(text)
        case "yaml":
            return yaml.safe_load(text)
        case "toml":
            return tomllib.loads(text)
        case "csv":
            return list(csv.DictReader(io.StringIO(text), strict=strict_csv))
        case "xml":
            import xmltodict

            return xmltodict.parse(text)


def header_of_csv(text: str) -> list[str]:
    """Return the columns that the first line of a CSV file names."""
    return list(csv.DictReader(io.StringIO(text)).fieldnames or [])
