"""One trace a rollout across processes, as a collector of OpenTelemetry receives it."""

import asyncio
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gymq.bus.rpc import tracing
from gymq.errors import GymqError
from gymq.ext.tracing import trace_id

trace_service = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="pip install 'gymq[observability]'"
)
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="pip install 'gymq[observability]'")

CONFIG = """
config_paths: [workers/resources/mcqa/config.yaml, workers/models/simulated_model/config.yaml]
"""
ROW = {
    "responses_create_params": {"input": "A or B?"},
    "options": [{"A": "x"}, {"B": "y"}],
    "expected_answer": "B",
    "agent_ref": {"name": "mcqa_simple_agent"},
}


class Collector:
    """Receives spans over OTLP/HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []  # (span, id of the process it came from)
        self.url = ""

    async def __aenter__(self) -> "Collector":
        app = web.Application()
        app.router.add_post("/v1/traces", self._receive)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        body = trace_service.ExportTraceServiceRequest.FromString(await request.read())
        for sent in body.resource_spans:
            resource = {one.key: one.value.string_value for one in sent.resource.attributes}
            self.spans += [
                (span, resource["service.instance.id"]) for scope in sent.scope_spans for span in scope.spans
            ]
        return web.Response(content_type="application/x-protobuf")


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


async def test_a_rollout_is_one_trace_over_all_its_processes(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    command = ["collect", "--config", "config.yaml", "--rows", "rows.jsonl", "--output", "out.jsonl"]
    async with Collector() as collector:
        env = os.environ | {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        process = await asyncio.create_subprocess_exec(
            *(str(Path(sys.executable).with_name("gymq")), *command, "--num-repeats", "3"), cwd=tmp_path, env=env
        )
        assert await process.wait() == 0
    traces = defaultdict(list)
    for span, worker in collector.spans:
        traces[span.trace_id].append((span, worker))
    roots = {attributes(span)["gymq.rollout"]: span for span, _ in collector.spans if span.name == "rollout"}
    assert len(roots) == 3
    for name, root in roots.items():
        assert int.from_bytes(root.trace_id) == trace_id(name)
        assert not root.parent_span_id
        assert "gymq.reward" in attributes(root)
        spans = traces[root.trace_id]
        assert len({worker for _, worker in spans}) >= 3  # agent, model, resources
        ids = {span.span_id for span, _ in spans}
        assert all(span.parent_span_id in ids for span, _ in spans if span is not root)
        assert {"rollout", "generate", "verify"} <= {span.name for span, _ in spans}


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.EXPORTER, "otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(GymqError, match=r"pip install 'gymq\[observability\]'"):
        tracing.start("test")
