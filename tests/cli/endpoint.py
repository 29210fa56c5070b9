"""An endpoint for a policy that speaks both dialects and always answers "A"."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TEXT = {"type": "output_text", "text": "A", "annotations": []}
MESSAGE = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [TEXT]}
RESPONSE = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [MESSAGE],
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "tools": [],
}
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A"}}
PROBE = "Hi"  # what the first request of each start says
COMPLETION = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE]}


def prompt_of(body: dict[str, Any]) -> str:
    """Return the last message of a request, in either dialect."""
    content = body.get("input") or body["messages"]
    text: str = content[-1]["content"]
    return text


@dataclass
class Endpoint:
    """Answers both dialects and remembers the bodies of the requests."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def asked(self, prompt: str) -> list[dict[str, Any]]:
        """The bodies with this text in them."""
        return [body for body in self.bodies if prompt in json.dumps(body)]


@contextlib.contextmanager
def running_endpoint() -> Iterator[Endpoint]:
    """Serve on a free port while the block runs."""

    def answer(path: str, body: Any) -> tuple[int, Any]:
        if path.endswith("/models"):
            return 200, {"object": "list", "data": [{"id": name, "object": "model"} for name in "mn"]}
        endpoint.bodies.append(body)
        return 200, RESPONSE if path.endswith("/responses") else COMPLETION

    endpoint = Endpoint("")
    with served(answer) as endpoint.url:
        yield endpoint


@contextlib.contextmanager
def served(answer: Callable[[str, Any], tuple[int, Any]], **headers: str) -> Iterator[str]:
    """Serve scripted answers in JSON on a free port while the block runs.

    Args:
        answer: called with the path and the body of a request (None: it is a GET); returns status and content.
        headers: sent with each answer; an underscore stands for a hyphen.

    Returns:
        The base URL, which ends in /v1.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond(None)

        def do_POST(self) -> None:
            self._respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _respond(self, asked: Any) -> None:
            status, content = answer(self.path, asked)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
