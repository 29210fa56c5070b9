"""An MCP server on its standard streams without any library, so that it starts at once and may break every rule."""

import json
import os
import sys

notes: dict[str, str] = {}


def write_note(name, text):
    notes[name] = text
    return "written"


def read_note(name):
    return notes[name]


def die():
    sys.stderr.write("x" * 200_000 + "\nno disk is left\n")
    sys.stderr.flush()
    os._exit(3)


def hang():
    return None  # no answer


def where():
    return os.getcwd()


def secret():
    return f"{os.environ.get('GIVEN')} {os.environ.get('OF_THE_WORKER')}"


def several():
    return [{"type": "text", "text": "one"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]


def nonsense():
    return 5  # content has to be a list


TOOLS = {tool.__name__: tool for tool in (write_note, read_note, die, hang, where, secret, several, nonsense)}


def result_of(method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bare", "version": "1"},
        }
    if method == "tools/list":  # in pages of three
        start = int(params.get("cursor", 0))
        names = list(TOOLS)[start : start + 3]
        page = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        return page | ({"nextCursor": str(start + 3)} if start + 3 < len(TOOLS) else {})
    if method == "tools/call":
        try:
            answer = TOOLS[params["name"]](**params.get("arguments", {}))
        except KeyError as error:
            return {"content": [{"type": "text", "text": f"there is no {error}"}], "isError": True}
        if answer is None:
            return None
        return {"content": [{"type": "text", "text": answer}] if isinstance(answer, str) else answer}
    raise LookupError(method)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        result = result_of(message["method"], message.get("params") or {})
        if result is None:
            continue
        answer["result"] = result
    except LookupError as error:
        answer["error"] = {"code": -32601, "message": f"there is no method {error}"}
    except TypeError as error:
        answer["error"] = {"code": -32602, "message": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
