"""A small coding agent as a program of its own: Chat Completions, one tool, until the model calls none."""

import json
import os
import subprocess
import sys
import urllib.request

BASH = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOL = {"type": "function", "function": {"name": "bash", "description": "Run a command.", "parameters": BASH}}


def ask(messages):
    body = {"model": "any", "messages": messages, "tools": [TOOL]}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)["choices"][0]["message"]


with open(os.environ["PROBLEM_STATEMENT"]) as file:
    conversation = [{"role": "user", "content": file.read()}]
while True:
    said = ask(conversation)
    conversation.append(said)
    if not said.get("tool_calls"):
        sys.exit(0)
    for call in said["tool_calls"]:
        try:
            command = json.loads(call["function"]["arguments"])["command"]
            done = subprocess.run(command, shell=True, capture_output=True, text=True, errors="replace", check=False)
            output = done.stdout + done.stderr
        except (ValueError, TypeError, KeyError) as error:
            output = f"The call cannot be run: {error!r}"
        conversation.append({"role": "tool", "tool_call_id": call["id"], "content": output})
