"""A later release of gymq, made of the files of this one."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTED = "of a later release"  # what each of its worker processes logs when it serves


def release(folder: Path, versions: str) -> Path:
    """Make a folder with gymq as a wheel of a later release installs it, and return the folder.

    It speaks other versions, and sends fields that this one lacks.

    Args:
        versions: those that it speaks, as in `gymq.protocol.versions`.
    """
    ignored = shutil.ignore_patterns("tests")
    shutil.copytree(ROOT / "gymq", folder / "gymq", ignore=ignored)
    shutil.copytree(ROOT / "workers", folder / "gymq" / "workers", ignore=ignored, dirs_exist_ok=True)
    for name, before, after in (
        ("protocol/versions", "oldest=1, newest=1", versions),
        ("cluster/worker_process", "    answer(READY)\n", f'    log.warning("{STARTED}")\n    answer(READY)\n'),
        (
            "protocol/messages",
            "    run: Token\n",
            "    run: Token\n    since_later: list[int] = msgspec.field(default_factory=lambda: [1])\n",
        ),
    ):
        file = folder / "gymq" / f"{name}.py"
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))
    return folder
