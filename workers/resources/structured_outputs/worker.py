"""structured_outputs: the reply, or the arguments of a tool call, have to fit a JSON schema. Content is not judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, ParamSpec

from gymq.workers.resources.structured_outputs.formats import Format
from gymq.workers.resources.structured_outputs.rules import AsMeant, Published
from gymq.workers.resources.structured_outputs.validation import Finding, check_arguments, check_reply, prepare

import gymq
from gymq.authoring import check_installed
from gymq.processes import ComputeLimits, CpuTimeUsedUp

P = ParamSpec("P")


class SchemaRow(gymq.Row):
    schema_str: str  # JSON
    schema_type: Format = "json"
    response_mode: Literal["text", "tool_call"] | None = "text"  # None is text
    tool_name: str | None = None
    tool_payload_key: str | None = None


class StructuredOutputs(gymq.Resources[SchemaRow]):
    """Reward 1 if the reply can be parsed and fits the schema."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        xml_coerce_types: bool = True
        hardened: bool = True  # false: see `Published`

    # The schema's patterns may need exponential time on an unlucky reply; that counts against the reply.
    compute_limits = ComputeLimits(cpu_s=20.0, timeout_s=400.0, max_memory_bytes=4 * 1024**3, prepare=prepare)

    async def start(self) -> None:
        check_installed("resources", "openapi_schema_validator", "xmltodict")
        self._rule = AsMeant() if self.options.hardened else Published()

    async def verify(self, request: gymq.VerifyRequest[SchemaRow]) -> gymq.Verdict:
        finding = await (self._tool_call(request) if request.row.response_mode == "tool_call" else self._text(request))
        return gymq.Verdict(
            float(finding.error_type is None),
            schema_type=request.row.schema_type,
            error_type=finding.error_type,
            error_message=finding.error_message,
        )

    async def _text(self, request: gymq.VerifyRequest[SchemaRow]) -> Finding:
        row, reply, coerce_xml = request.row, request.reply_text, self.options.xml_coerce_types
        if not reply.strip():
            return Finding("empty_response", "the reply has no text")
        return await self._validation(check_reply, self._rule, reply, row.schema_str, row.schema_type, coerce_xml)

    async def _tool_call(self, request: gymq.VerifyRequest[SchemaRow]) -> Finding:
        row = request.row
        call = only_call(request, row.tool_name)
        if isinstance(call, Finding):
            return call
        return await self._validation(
            check_arguments, self._rule, call.get("arguments") or "", row.tool_payload_key, row.schema_str
        )

    async def _validation(self, check: Callable[P, Finding], *args: P.args, **kwargs: P.kwargs) -> Finding:
        try:
            return await self.compute(check, *args, **kwargs)
        except CpuTimeUsedUp:
            return Finding("validation_error", f"not decided in {self.compute_limits.cpu_s:g} s of processor time")


def only_call(request: gymq.VerifyRequest[SchemaRow], tool_name: str | None) -> gymq.FunctionCall | Finding:
    """Return the only tool call of the response, or the error in the calls. Without a name any tool matches."""
    error = request.response.get("error")
    if error is not None:
        return Finding("api_error", "the model answered with an error")
    calls = request.function_calls
    if not calls:
        return Finding("missing_tool_call", "there is no tool call")
    if len(calls) > 1:
        return Finding("multiple_tool_calls", f"there are {len(calls)} tool calls instead of one")
    if tool_name and calls[0]["name"] != tool_name:
        return Finding("wrong_tool_name", f"the call is to {calls[0]['name']} instead of {tool_name}")
    return calls[0]
