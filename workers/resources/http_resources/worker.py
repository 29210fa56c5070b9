"""http_resources: an environment that is served over HTTP in the manner of NeMo Gym, put on the queue as it is.

The server keeps the state, runs the tools and gives the rewards. This worker holds its cookies, one jar a session, and
says what happened to a call: an answer, a failure that is worth another try, or one that is not.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import msgspec
import pydantic
from gymq.workers.resources.http_resources.service import (
    Answer,
    HttpServer,
    HttpSession,
    NotAnswered,
    TooLarge,
    failure_of,
)

import gymq
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.tokens import to_json

# Other paths of such a server; a model that calls one of them as a tool would reach past its tools.
RESERVED = frozenset({"seed_session", "verify", "close_session", "aggregate_metrics"})
BUSY = frozenset({429, 502, 503, 504})  # said by the server's surroundings, not by the environment
SEED_TRIES = 3
SEED_PAUSE_S = 0.5

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class TextRow(gymq.Row):
    """A row, with the JSON text that it was read from."""

    _text: bytes = pydantic.PrivateAttr(b"")

    @property
    def tool_names(self) -> frozenset[str]:
        """The functions that the row offers to the model."""
        tools = self.responses_create_params.get("tools") or ()
        names = {tool.get("name") for tool in tools if tool.get("type") == "function"}
        return frozenset(name for name in names if name and _TOOL_NAME.fullmatch(name)) - RESERVED


class Remote:
    """A session of the server."""

    def __init__(self, http: HttpSession, tool_names: frozenset[str]) -> None:
        self.http = http
        self.tool_names = tool_names


class HttpResources(gymq.Resources[TextRow, Remote]):
    """The reward that a resources server gives over HTTP."""

    reward_range = (0.0, 1.0)
    deterministic = False
    needs = frozenset({"network"})

    class Options(gymq.WorkerOptions):
        base_url: str  # of the server, such as http://10.0.0.7:8000
        request_timeout_s: pydantic.PositiveFloat = 600.0
        max_answer_bytes: pydantic.PositiveInt = 64 * 1024 * 1024
        reward_range: tuple[float, float] = (0.0, 1.0)  # of the server's rewards; one outside is an error

        @pydantic.field_validator("base_url")
        @classmethod
        def _check_url(cls, url: str) -> str:
            if not re.match(r"https?://[^/\s]+", url):
                raise ValueError(f"expected an address such as http://10.0.0.7:8000, not {url!r:.80}")
            return url

        @pydantic.field_validator("reward_range")
        @classmethod
        def _check_range(cls, given: tuple[float, float]) -> tuple[float, float]:
            if given[0] > given[1]:
                raise ValueError("the lowest reward comes first")
            return given

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.options
        self.reward_range = options.reward_range
        self.server = HttpServer(options.base_url, options.request_timeout_s, options.max_answer_bytes)

    async def start(self) -> None:
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()

    def parse_row(self, row: bytes | dict[str, Any], row_type: type[gymq.Row] | None = None) -> Any:
        parsed = super().parse_row(row, row_type)
        parsed._text = row if isinstance(row, bytes) else to_json(row)
        return parsed

    async def open(self, row: TextRow) -> Remote:
        """Seed a session there. A seed may come twice without harm, so it is tried again."""
        failed = 0
        while True:
            http = self.server.session()
            try:
                answer = await http.post("/seed_session", row._text)
                if answer.status < 300:
                    return Remote(http, row.tool_names)
                error = _not_seeded(answer)
            except NotAnswered as unanswered:
                error = failure_of(unanswered, gymq.FailureClass.COMPONENT_FAILED)
                if not unanswered.sent:
                    failed = SEED_TRIES  # connecting was tried often enough
            except TooLarge as too_large:
                error = gymq.RolloutError(gymq.FailureClass.COMPONENT_FAILED, str(too_large), retryable=False)
            except BaseException:
                await http.close()
                raise
            await http.close()
            failed += 1
            if not error.retryable or failed >= SEED_TRIES:
                raise error
            await asyncio.sleep(SEED_PAUSE_S)

    async def close(self, state: Remote) -> None:
        await state.http.close()

    async def call_tool(self, state: Remote, name: str, arguments: Any) -> str:
        """Post the arguments to the tool's path, once. The model reads the body of the answer, whatever its status."""
        if name not in state.tool_names:
            raise gymq.ToolError(404, f"there is no tool named {name!r}")
        try:
            answer = await state.http.post(f"/{name}", json.dumps(arguments).encode())
        except NotAnswered as error:
            # If it was sent, the tool ran, or did not, or still does: nothing that follows could be trusted.
            raise failure_of(error, gymq.FailureClass.SESSION_LOST) from None
        except TooLarge as error:
            raise gymq.ToolError(500, str(error)) from None
        if answer.status in BUSY:
            text = f"{name} was not carried out properly, so the state is unknown: {answer.shown}"
            raise gymq.RolloutError(gymq.FailureClass.SESSION_LOST, text)
        return answer.text

    async def verify(self, request: gymq.VerifyRequest[TextRow, Remote]) -> gymq.Verdict:
        state = request.state
        row = msgspec.json.decode(request.row._text, type=dict[str, msgspec.Raw])
        body = to_json({**row, "response": request.response})
        try:
            if state is not None:
                answer = await state.http.post("/verify", body)
            else:
                async with self.server.session() as http:
                    answer = await http.post("/verify", body)
        except NotAnswered as error:
            raise failure_of(error, gymq.FailureClass.COMPONENT_FAILED) from None
        except TooLarge as error:
            raise gymq.RolloutError(gymq.FailureClass.VERIFIER_FAILED, str(error), retryable=False) from None
        return _verdict(answer, row)


def _not_seeded(answer: Answer) -> gymq.RolloutError:
    text = f"/seed_session refused the row, {answer.shown}"
    if answer.status == 422:
        return gymq.InvalidTask(text)
    retryable = answer.status >= 500 or answer.status in BUSY
    return gymq.RolloutError(gymq.FailureClass.COMPONENT_FAILED, text, retryable=retryable)


def _verdict(answer: Answer, row: dict[str, msgspec.Raw]) -> gymq.Verdict:
    """Return what the server says beside what it was sent."""
    if answer.status >= 300:
        raise _not_verified(answer)
    try:
        members = msgspec.json.decode(answer.body, type=dict[str, Any])
    except UNDECODABLE as error:
        raise _broken(f"/verify did not answer with a JSON object: {error}") from None
    failure_class = members.get("_ng_failure_class")
    if failure_class or members.get("_ng_no_persist"):
        judged = failure_class == gymq.FailureClass.JUDGE_FAILED
        raise gymq.RolloutError(
            gymq.FailureClass.JUDGE_FAILED if judged else gymq.FailureClass.VERIFIER_FAILED,
            f"/verify answered with a failure in place of a reward: {failure_class or 'nothing to keep'}",
            retryable=not members.get("_ng_failure_terminal"),
        )
    reward = members.pop("reward", None)
    if not isinstance(reward, int | float):
        raise _broken(f"/verify answered without a number as `reward`: {answer.shown}")
    for name in ("response", "responses_create_params"):  # echoes
        members.pop(name, None)
    said = {
        name: value for name, value in members.items() if name not in row or value != msgspec.json.decode(row[name])
    }
    return gymq.Verdict(reward, **said)


def _not_verified(answer: Answer) -> gymq.RolloutError:
    text = f"/verify gave no reward, {answer.shown}"
    if answer.status == 422:
        return gymq.InvalidTask(text)
    if answer.status in BUSY:
        return gymq.ComponentFailed(text)
    return gymq.RolloutError(gymq.FailureClass.VERIFIER_FAILED, text, retryable=answer.status >= 500)


def _broken(text: str) -> gymq.RolloutError:
    return gymq.RolloutError(gymq.FailureClass.VERIFIER_FAILED, text)
