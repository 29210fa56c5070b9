"""Prints the tools of an MCP server as entries of `responses_create_params.tools`.

python -m gymq.ext.mcp COMMAND [ARGUMENT ...]
python -m gymq.ext.mcp URL
"""

from __future__ import annotations

import asyncio
import json
import sys

import pydantic

from gymq.authoring import OptionsError, first_problem
from gymq.ext.mcp.servers import McpConnection, ServerOptions, require_library
from gymq.failures import ComponentFailed


async def print_tools(words: list[str]) -> None:
    is_url = words[0].startswith(("http://", "https://"))
    options = ServerOptions(url=words[0]) if is_url else ServerOptions(command=words)
    if problem := options.problem():
        raise OptionsError(problem)
    connection = McpConnection(words[0], options)
    await connection.open(60.0)
    await connection.close()
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description or "",
            "parameters": tool.input_schema,
            "strict": False,
        }
        for tool in connection.tools.values()
    ]
    print(json.dumps(tools, indent=2, ensure_ascii=False))


def main() -> int:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if words else 2
    try:
        require_library()
        asyncio.run(print_tools(words))
    except (ComponentFailed, OptionsError) as error:
        print(f"gymq: {error}", file=sys.stderr)
        return 2
    except pydantic.ValidationError as error:
        print(f"gymq: {first_problem(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
