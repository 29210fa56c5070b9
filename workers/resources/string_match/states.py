"""The states of the USA with their postal codes."""

from __future__ import annotations

import json
from pathlib import Path

# Two-word names come first, since `virginia` is in `west virginia`.
STATES: dict[str, str] = json.loads(Path(__file__).with_name("states.json").read_text(encoding="utf-8"))
