"""A program that asks a model twice, at the URL and with the key of its environment."""

PROGRAM = """
import json, os, urllib.request
asked = {"model": "any", "messages": [{"role": "user", "content": "Capital of Switzerland?"}]}
for turn in range(2):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(asked).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    asked["messages"] += [answer, {"role": "user", "content": "Sure?"}]
print(answer["content"])
"""
