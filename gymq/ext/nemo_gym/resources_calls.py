"""One call to a resources instance over HTTP: seed, tool, verify or close, in a session that a cookie stands for."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from gymq.agent import RESERVED_TOOL_NAMES, Caller
from gymq.data.failure_status import StatusError
from gymq.data.jsonl import JsonlError, parse_object
from gymq.data.rows import FAILURE_CLASS, MAX_INDEX, PARAMS
from gymq.ext.http.errors import invalid, not_found, of_rollout_error
from gymq.failures import RolloutError
from gymq.protocol import subjects
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import (
    Call,
    Close,
    FailureClass,
    Message,
    Seed,
    Seeded,
    Stage,
    ToolCall,
    ToolResult,
    Verified,
    Verify,
)
from gymq.protocol.tokens import to_json


class ResourcesCalls:
    """The calls that HTTP clients make to one resources instance.

    Each call has a number, and a session answers a repeated number from memory. Here the number is random, or derived
    from the key that the caller gives, so a bridge need not remember how many calls a session has had.
    """

    def __init__(self, caller: Caller, resources: str, timeout_s: float) -> None:
        self._caller = caller
        self._resources = resources
        self._timeout_s = timeout_s

    async def seed(self, row: bytes) -> str | None:
        """Open a session with the JSON text of a row; its subject, None for a worker without state.

        Raises:
            StatusError
        """
        _object(row)
        request = Seed(rollout=self._rollout, timeout_s=self._timeout_s, row=row)
        seeded = await self._call(subjects.SEED.of(self._resources), request, Stage.SEED)
        assert isinstance(seeded, Seeded)
        return seeded.session

    async def call_tool(self, session: str | None, name: str, arguments: bytes, key: str | None) -> ToolResult:
        """Call a tool with the JSON text of its arguments; an empty text is null.

        Raises:
            StatusError: 404, 422, or there is no answer.
        """
        if name in RESERVED_TOOL_NAMES:
            raise not_found(f"there is no tool named {name!r}")
        try:
            text = arguments.decode() or "null"
            msgspec.json.decode(text)
        except UNDECODABLE as error:
            raise invalid(f"the arguments are not JSON: {error}") from None
        request = ToolCall(
            rollout=self._rollout, timeout_s=self._timeout_s, number=_number(key), name=name, arguments=text
        )
        result = await self._call(session or subjects.STATELESS.of(self._resources), request, Stage.TOOL)
        assert isinstance(result, ToolResult)
        return result

    async def verify(self, session: str | None, body: bytes, key: str | None) -> bytes:
        """Score the `response` in a row and return the row with the verdict, as JSON text.

        Raises:
            StatusError: there is no verdict.
        """
        fields = _object(body)
        response = _decoded(fields, "response")
        if not isinstance(response, dict):
            raise invalid("response: expected a Responses object; verify takes the row with the response in it")
        if not isinstance(_decoded(fields, PARAMS), dict):
            raise invalid(f"{PARAMS}: expected an object; verify takes the row with the response in it")
        row = msgspec.json.encode({name: value for name, value in fields.items() if name != "response"})
        request = Verify(
            rollout=self._rollout, timeout_s=self._timeout_s, number=_number(key), row=row, response=response
        )
        verified = await self._call(session or subjects.STATELESS.of(self._resources), request, Stage.VERIFY)
        assert isinstance(verified, Verified)
        if verified.verdict.get(FAILURE_CLASS):
            text = "the verifier answered with a failure in place of a reward"
            raise StatusError(500, str(verified.verdict[FAILURE_CLASS]), text, stage="verify")
        return to_json({**fields, **verified.verdict, "reward": verified.reward})

    async def close(self, session: str) -> None:
        """Close a session."""
        await self._caller.send(session, Close(rollout=self._rollout, timeout_s=60.0))

    @property
    def _rollout(self) -> str:
        return f"bridge/{self._resources}"

    async def _call(self, subject: str, request: Call, stage: Stage) -> Message:
        try:
            return await self._caller.call(subject, request)
        except RolloutError as error:
            if error.failure_class is FailureClass.SESSION_LOST and not subject.startswith(subjects.SESSIONS):
                text = (
                    f"{self._resources} keeps state and this call has no session: "
                    "seed a session first, and send the cookie of the last reply with every call"
                )
                raise StatusError(400, "no_session", text, stage=str(stage)) from None
            raise of_rollout_error(error.at(stage)) from None


def _number(key: str | None) -> int:
    """Return a call number that is unique in the session; the same key always gives the same number."""
    data = secrets.token_bytes(8) if key is None else hashlib.sha256(key.encode()).digest()
    return int.from_bytes(data[:8], "big") % MAX_INDEX


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        return parse_object(body)
    except (JsonlError, RecursionError) as error:
        raise invalid(f"the body must be a row: {str(error).removeprefix('the line is ')}") from None


def _decoded(fields: Mapping[str, Any], name: str) -> Any:
    try:
        return msgspec.json.decode(fields.get(name, b"null"))
    except UNDECODABLE as error:
        raise invalid(f"{name}: {error}") from None
