"""Pictures of the viewer, wide and narrow, light and dark: nothing is cut off, and a person can look at them.

They are kept in the folder that GYMQ_SCREENSHOTS names.
"""

import json
import os
from array import array
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gymq.data.run_changes import RecordedInstance
from gymq.data.run_configuration import encode_configuration
from gymq.protocol.messages import Stage, Timing
from gymq.testing import function_call, reply
from tests.support.browser import browser, needs_browser

from .conftest import Web, failure, rollout

pytestmark = needs_browser

SIZES = ((1280, 900), (400, 800))
MATHS = r"""The roots add up to \(-b/a\), so we need $x_1 x_2$.

\[
x_{1,2}
= \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}
\]

$$\begin{aligned} s &= 3 + 4 \\ &= 7 \end{aligned}$$

| root | value |
|:-----|------:|
| first | 3 |
| second | 4 |

So the answer is $\boxed{12}$."""
CODE = """I sort once, then **walk** the list:

```python
def median(values: list[float]) -> float:
    ordered = sorted(values)  # the input may be in any order
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1 : middle + 1]) / 2
```

1. empty lists are *not* asked for
2. `sum` of two floats is exact enough
"""
TRACEBACK = """Traceback (most recent call last):
  File "main.py", line 3, in <module>
    print(median([]))
  File "main.py", line 4, in median
    return ordered[middle]
IndexError: list index out of range"""
JUDGED = {
    "judge_evaluations": [
        {
            "request": {"input": [{"role": "user", "content": "Are these answers **equal**?\n\nA: 12\n\nB: twelve"}]},
            "response": {
                "output": [
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "Both name the same number. [[A=B]]"}],
                    }
                ]
            },
            "verdict_label": "[[A=B]]",
        }
    ],
    "extracted_answer": "12",
    "library_reward": 0.0,
}


def conversation() -> dict[str, Any]:
    call = function_call("run_python", {"code": "print(median([1, 2, 3]))\nprint(median([]))", "timeout_s": 5})
    response = reply(call, CODE)
    first, last = response["output"]
    response["output"] = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "First I try it, then I answer. " * 12}]},
        first,
        {"type": "function_call_output", "call_id": first["call_id"], "output": json.dumps({"stdout": "2", "code": 0})},
        function_call("run_python", {"code": "median([])"}),
        {"type": "function_call_output", "output": TRACEBACK},
        last,
    ]
    last |= {
        "prompt_token_ids": array("i", range(90)),
        "generation_token_ids": array("i", range(1000, 1060)),
        "generation_log_probs": array("f", [-0.02, -0.5, -1.2, -4.0] * 15),
    }
    return response


def configured(model: str, **options: Any) -> bytes:
    policy = {"openai_base_url": "http://localhost:8000/v1", "openai_api_key": "****", "openai_model": model, **options}
    workers = {
        "policy_model": RecordedInstance("models", "openai_model", policy),
        "sums": RecordedInstance("resources", "/work/sums.py:Sums", {"tolerance": 1e-6}, "3f" * 32),
        "sums_simple_agent": RecordedInstance(
            "agents", "simple_agent", {"model_server.name": "policy_model", "model_server.type": "responses_api_models"}
        ),
    }
    prompt = {"prompt.system": "You add numbers.\nShow each step.", "prompt.user": "{question}"}
    return encode_configuration({"input": "rows.jsonl", "num_repeats": 16, "concurrency": 256, **prompt}, workers)


async def store(web: Web, run: str) -> None:
    await web.announce(run, num_rollouts=8, models=["policy = a model"], configuration=configured("small"))
    tools = [{"type": "function", "name": "run_python", "parameters": {"type": "object", "properties": {}}}]
    params = {
        "input": "Write a function that returns the **median** of a list of numbers.",
        "instructions": "Be brief.",
    }
    row = {
        "expected_output": "2",
        "verifier_metadata": {"level": 2},
        "responses_create_params": params | {"tools": tools},
    }
    timings = [
        *(Timing(Stage.SEED, 0.0, 0.1), Timing(Stage.MODEL, 0.1, 1.4), Timing(Stage.TOOL, 1.5, 0.4)),
        *(Timing(Stage.MODEL, 1.9, 0.9), Timing(Stage.TOOL, 2.8, 0.2), Timing(Stage.MODEL, 3.0, 2.0)),
        Timing(Stage.VERIFY, 5.0, 0.5),
    ]
    fields: dict[str, Any] = {"timings": timings, "duration_s": 5.5, "policy_versions": ["step-40"], "num_rollouts": 4}
    verdict = {"unit_tests_passed": 7, "unit_tests": 8, "is_compiled": True, "log": TRACEBACK}
    await web.store(rollout(run, 0, response=conversation(), row=row, verdict=verdict, reward=0.875, **fields))
    question = r"The roots of $x^2 - 7x + 12 = 0$ are $x_1$ and $x_2$. What is $x_1 x_2$?"
    row = {"expected_answer": "12", "responses_create_params": {"input": question}}
    await web.store(*(rollout(run, 1, at, text=MATHS, row=row, verdict=JUDGED, num_rollouts=4) for at in range(4)))
    message = f"the verifier failed: IndexError: list index out of range\n{TRACEBACK}"
    await web.store(failure(run, 0, 1, message=message, num_rollouts=4, attempt=1))
    await web.store(*(rollout(run, 0, at, text=CODE, reward=0.25 * at, num_rollouts=4) for at in (2, 3)))
    other = f"{run}-step80"
    await web.announce(other, num_rollouts=96, models=["policy = a model"], configuration=configured("small"))
    for task in range(6):
        rewards = [(task * 7 + at * 3) % 5 / 4 for at in range(16)]
        asked = {"expected_answer": str(task), "responses_create_params": {"input": f"What is {task} + 0, and why?"}}
        if task in (1, 4):
            rewards = [float(task == 1)] * 16
        later = [min(1.0, reward + 0.25) for reward in rewards]
        given: dict[str, Any] = {"num_rollouts": 16, "row": asked, "text": f"It is {task}."}
        await web.store(*(rollout(other, task, at, reward=rewards[at], **given) for at in range(16)))
        await web.store(*(rollout(f"{other}-b", task, at, reward=later[at], **given) for at in range(16)))
    later_set = configured("small-step80", **{"extra_body.top_k": 20})
    described: dict[str, Any] = {"tags": ["larger-batch"], "configuration": later_set}
    await web.announce(f"{other}-b", num_rollouts=96, models=["policy = a model"], **described)
    await web.announce(f"{run}-long", num_rollouts=1, note="two hundred turns")
    turns: list[Any] = []
    for number in range(200):
        call = function_call("run_python", {"code": f"print({number} ** 2)"})
        first, last = reply(call, f"So **{number}** squared is `{number**2}`.")["output"]
        turns += [first, {"type": "function_call_output", "call_id": first["call_id"], "output": str(number**2)}, last]
    await web.store(rollout(f"{run}-long", 0, response=reply("done") | {"output": turns}, num_rollouts=1))
    await web.profile()


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_view_fits_wide_and_narrow(web: Web, run: str, tmp_path: Path, scheme: str) -> None:
    await store(web, run)
    views = {
        "runs": "",
        "run": f"run/{run}",
        "tasks": f"run/{run}-step80?tab=tasks",
        "charts": f"run/{run}-step80?tab=charts",
        "configuration": f"run/{run}?tab=configuration",
        "logs": "logs",
        "long": f"rollout/{run}-long/0/0",
        "failures": f"run/{run}?tab=failures",
        "code": f"rollout/{run}/0/0",
        "math": f"rollout/{run}/1/0",
        "failed": f"rollout/{run}/0/1",
        "comparison": f"compare/{run}-step80/{run}-step80-b",
        "side-by-side": f"compare/{run}/{run}/1/0",
    }
    folder = Path(os.environ.get("GYMQ_SCREENSHOTS", tmp_path))
    async with browser() as page:
        await page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for width, height in SIZES:
            for name, view in views.items():
                await page.open(f"{web.url}#/{view}")
                await page.whole(width, height)
                await page.screenshot(folder / f"{name}-{width}-{scheme}.png", whole=False)
                assert await page.value("document.documentElement.scrollWidth <= innerWidth"), (name, width)
        assert page.problems == []


@pytest.mark.nightly
async def test_the_pictures_of_the_documents_show_what_they_are_to_show(web: Web, run: str, tmp_path: Path) -> None:
    """The pictures in docs/images are copies: GYMQ_SCREENSHOTS=docs/images and this test make them again."""
    await store(web, run)
    views = {
        "viewer": (f"run/{run}-step80", ".dots"),
        "viewer_rollout": (f"rollout/{run}/0/0", ".turn .keyword"),
        "viewer_comparison": (f"compare/{run}-step80/{run}-step80-b", ".paired .value"),
    }
    folder = Path(os.environ.get("GYMQ_SCREENSHOTS", tmp_path))
    async with browser() as page:
        for name, (view, part) in views.items():
            await page.size(1280, 800)
            await page.open(f"{web.url}#/{view}")
            await page.until(f"document.querySelector('{part}') !== null")
            await page.rendered()
            await page.screenshot(folder / f"{name}.png", whole=False)
            with Image.open(folder / f"{name}.png") as picture:
                picture.convert("RGB").quantize(200).save(folder / f"{name}.png", optimize=True)
            assert (folder / f"{name}.png").stat().st_size < 100_000
        assert page.problems == []
