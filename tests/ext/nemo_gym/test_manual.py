"""What docs/bridge.md repeats of the code is what the code says."""

import re
from pathlib import Path

import pytest

from gymq.ext.nemo_gym.openapi import document
from gymq.ext.nemo_gym.settings import BridgeSettings

PAGE = (Path(__file__).parents[3] / "docs" / "bridge.md").read_text(encoding="utf-8")


def table(*headings: str) -> list[list[str]]:
    """The cells of the table with these headings, a list a row."""
    found = re.search(
        rf"^{re.escape('| ' + ' | '.join(headings) + ' |')}\n\|[ -|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE
    )
    assert found
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in found[1].splitlines()]


def test_every_setting_is_documented_with_its_default() -> None:
    settings = {name.strip("`"): default for name, default, _ in table("setting", "default", "meaning")}
    assert settings.keys() == BridgeSettings.model_fields.keys()
    for name, field in BridgeSettings.model_fields.items():
        if isinstance(field.default, bool):
            assert settings[name] == ("on" if field.default else "off")
        elif isinstance(field.default, int | float):
            assert float(settings[name]) == field.default
        elif isinstance(field.default, str):
            assert settings[name] == field.default


ROUTES = re.findall(r"`?(?:GET|POST) (/[a-z_/0-9.]*)`", PAGE.partition("## /run")[0])
FOR_PEOPLE = {"/ui"}


@pytest.mark.parametrize("path", [path for path in ROUTES if path not in FOR_PEOPLE])
def test_every_documented_route_is_in_the_openapi_document(path: str) -> None:
    assert path in document(with_key=False)["paths"]


def test_every_documented_status_is_in_the_openapi_document() -> None:
    documented = {status for row in table("status", "when", "retry?") for status in row[0].split(", ")}
    operation = document(with_key=True)["paths"]["/run"]["post"]
    assert documented == set(operation["responses"]) - {"200"}
