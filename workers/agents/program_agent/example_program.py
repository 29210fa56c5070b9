"""A program that knows nothing of gymq: it reads a question, asks a model of OpenAI's API twice, prints the answer."""

import json
import os
import sys
import urllib.request

messages = [{"role": "user", "content": sys.stdin.read()}]
for request in ("", "Check your answer, then give it again."):
    if request:
        messages.append({"role": "user", "content": request})
    asked = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "messages": messages}).encode(),
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked) as answer:
        messages.append(json.load(answer)["choices"][0]["message"])
print(messages[-1]["content"])
