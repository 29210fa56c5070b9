"""swerl_gen reads replies and logs with an effort that grows with their length, outside of the event loop."""

import json

import pytest
from gymq.workers.resources.swerl_gen.edits import MAX_EDITS, Void, apply_edits, edited_files, edits_in
from gymq.workers.resources.swerl_gen.grading import resolution_of
from gymq.workers.resources.swerl_gen.logs import statuses_in, with_failures_kept
from gymq.workers.resources.swerl_gen.reproduction import script_in
from gymq.workers.resources.swerl_gen.worker import SwerlGen

from gymq.testing import Harness, prompt, reply
from tests.security.effort import FOURFOLD, growth

BLOCK = "```python\n### f\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```\n"


@pytest.mark.parametrize(
    "part",
    [
        "`",
        "```\n",
        "```\n### f\n",
        "```\n### f\n<<<<<<< SEARCH\n",
        "```\n### f\n<<<<<<< SEARCH\na\n=======\n",
        "```\n### f\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n",
        "```\n### f\n\n\n\n",
        "\n=======\n",
        "\n>>>>>>> REPLACE\n\n\n",
    ],
)
def test_blocks_are_looked_for_once(part):
    assert growth(edits_in, lambda n: part * n, 500) < FOURFOLD


def test_equal_edits_are_found_by_their_text():
    assert growth(edits_in, lambda n: "".join(BLOCK.format(old=i, new="x") for i in range(n)), 250) < FOURFOLD


def test_edits_of_one_file_are_applied_in_one_go():
    def text_of(n):
        return json.dumps([[f"{i:06}", f"new {i}"] for i in range(n)])

    def apply(text):
        pairs = [tuple(pair) for pair in json.loads(text)]
        return apply_edits({"f": pairs}, {"f": "\n".join(old for old, _ in pairs)})

    assert growth(apply, text_of, 200) < FOURFOLD


def test_the_number_of_edits_has_a_limit():
    contents = {"f": "".join(f"{i}\n" for i in range(MAX_EDITS + 1))}
    blocks = [BLOCK.format(old=f"{i}\n", new="x") for i in range(MAX_EDITS + 1)]
    assert edited_files("".join(blocks[:-1]), True, contents)["f"].count("x") == MAX_EDITS
    with pytest.raises(Void, match="more than"):
        edited_files("".join(blocks), True, contents)


@pytest.mark.parametrize("repository", ["a/b", "a/pytest", "a/django", "a/sympy"])
@pytest.mark.parametrize(
    "log",
    [
        lambda n: "[" + " " * n,
        lambda n: "[" * n + "50%]",
        lambda n: " " * n + "[ 50%] x",
        lambda n: "PASSED " + "[]" * n,
        lambda n: "PASSED " + "[" * n + "/a]",
        lambda n: "PASSED " + "a " * n,
        lambda n: "\x1b[" + "0" * n,
        lambda n: "PASSED t\n" * n,
        lambda n: "test_a ... ok\n" * n,
    ],
)
def test_each_line_of_a_log_is_read_once(repository, log):
    assert growth(lambda text: statuses_in(text, repository, with_failures_kept), log, 500) < FOURFOLD


@pytest.mark.parametrize(
    "part",
    ["```python\n", "```python\na\n", "-\n", "- \n", "\n", "#!/usr/bin/env python", "-\n#!/usr/bin/env python\n-x\n"],
)
def test_scripts_are_looked_for_once(part):
    def found(text):
        try:
            return script_in(text)
        except Void:
            return None

    assert growth(found, lambda n: part * n, 500) < FOURFOLD


@pytest.mark.parametrize(
    "hostile",
    [
        "<solution>" + "`" * 1_000_000 + "</solution>",
        "<solution>" + "```\n### f\n<<<<<<< SEARCH\n" * 40_000 + "</solution>",
        "<solution>" + ("```\n### f\n<<<<<<< SEARCH\na\n=======\n" + "b" * 1000) * 2000 + "</solution>",
    ],
)
def test_long_replies_end(hostile):
    with pytest.raises(Void):
        edited_files(hostile, False, {"f": "a\n"})


@pytest.mark.parametrize(
    "hostile",
    [
        "[" + " " * 16_000_000,
        "PASSED " + "[]" * 8_000_000,
        " " * 8_000_000 + "[" + " " * 8_000_000 + "1%]",
        "\n" * 500_000,
    ],
)
def test_long_logs_end(hostile):
    assert resolution_of(f"applied patch\n{hostile}", "a/b", ["t"], []) == "RESOLVED_NO"


async def test_replies_and_logs_are_read_in_another_process(tmp_path, monkeypatch):
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "f").write_text("a\n")
    calls = []

    async def compute(function, *arguments):
        calls.append(function.__name__)
        return function(*arguments)

    instance = {"repo": "a/b", "test_script": "echo PASSED t", "FAIL_TO_PASS": ["t"], "PASS_TO_PASS": []}
    metadata = {"relevant_file_contents": json.dumps({"f": "a\n"}), "remove_repo_name": False, "image": "image"}
    row = {**prompt("q"), "instance": instance, "metadata": metadata}
    async with Harness(SwerlGen, {"images_folder": str(tmp_path)}) as env:
        monkeypatch.setattr(env.author, "compute", compute)
        solution = f"<solution>{BLOCK.format(old='a', new='b')}</solution>"
        assert (await env.verify(row, reply(solution))).reward == 1.0
    assert calls == ["edited_files", "patch_of", "resolution_of"]
