"""The agents, models and environments that gymq ships: `gymq.workers.resources.mcqa.worker` and so on.

A wheel has them beside this file. A checkout has them in the folder `workers/` at its top, so its package leads there.
"""

from pathlib import Path

_here = Path(__file__).resolve().parent

SHIPPED = _here.parent if (_here / "resources").is_dir() else _here.parents[1]
"""The folder that holds `workers/` and `examples/`, under which names of shipped files are looked up."""

__path__ = [str(SHIPPED / "workers")]


def located(path: str | Path) -> Path:
    """Return a path, or where a shipped file of that name is if the path does not exist in the current folder."""
    return next((found for found in (Path(path), SHIPPED / path) if found.exists()), Path(path))
