"""The logs of processes do not grow without end."""

from pathlib import Path

import pytest

from gymq.cluster import launch
from gymq.cluster.launch import Cluster
from tests.support.waiting import until


async def test_a_log_that_is_full_is_kept_once_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LOG_MAX_BYTES", 1000)
    monkeypatch.setattr(launch, "LOG_CHECK_S", 0.05)
    logs = tmp_path / "logs"
    async with Cluster([], folder=tmp_path, drain_s=1.0):
        full, kept = logs / "services.log", logs / "services.old.log"
        with full.open("a") as log:
            log.write("x" * 2000)
            log.flush()
            await until(lambda: kept.exists() and not full.stat().st_size)
            log.write("and on")
        assert full.read_text() == "and on"
        assert "x" * 2000 in kept.read_text()
