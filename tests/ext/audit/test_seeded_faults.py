"""The audit finds each fault that is put into a copy of a worker, and nothing in the copy without it."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from gymq.errors import UsageError
from gymq.ext.audit import checks
from gymq.ext.audit.auditing import audit

RESOURCES = Path(__file__).parents[3] / "workers" / "resources"


@dataclass(frozen=True)
class Fault:
    """A change of a worker's code.

    Attributes:
        worker: whose code.
        found_by: the check that finds it.
        old: a piece of the code.
        new: what takes its place.
        said: a part of what the audit says.
    """

    worker: str
    found_by: str
    old: str
    new: str
    said: str


MCQA_CHOICES = "        choices = Choices.of(row.options or [])\n"
FAULTS = {
    "a constant reward": Fault(
        "mcqa", "empty", "reward = float(letter is not None and letter == gold)", "reward = 1.0", "an empty text"
    ),
    "a right reply that earns nothing": Fault(
        "mcqa", "gold", "letter == gold)", "letter == gold.lower())", "reward 0, expected 1"
    ),
    "the first of several answers counts": Fault(
        "mcqa", "all options", "letter is not None and letter == gold", 'f"boxed{{{gold}}}" in reply', "all letters as"
    ),
    "an answer in bold is none": Fault(
        "mcqa",
        "dressed answers",
        "letter == gold)",
        'letter == gold and "textbf" not in reply)',
        "textbf: reward 0; a right answer, false 0",
    ),
    "one of several answers counts": Fault(
        "mcqa",
        "near misses",
        "letter is not None and letter == gold",
        'letter == gold or f"{gold}) " in reply',
        "several answers: reward 1; a wrong answer, false 1",
    ),
    "a state that all sessions share": Fault(
        "example_session_state_mgmt",
        "an idle session",
        "return Counter(row.initial_count)",
        'shared = self.__dict__.setdefault("shared", Counter(row.initial_count))\n        return shared',
        "the gold reply after that of another session has reward 0",
    ),
    "squared work": Fault(
        "mcqa",
        "growth",
        MCQA_CHOICES,
        MCQA_CHOICES + '        ticks = len(reply) if reply.startswith("````") else 0\n'
        "        sum(1 for _ in range(ticks * ticks // 8))\n",
        "times as long as for a quarter",
    ),
    "a blocked event loop": Fault(
        "mcqa",
        "event loop",
        MCQA_CHOICES,
        MCQA_CHOICES + "        import time\n\n        time.sleep(2.0 if len(reply) == 1_000_000 else 0.0)\n",
        "no other request is answered",
    ),
    "a verdict by chance": Fault(
        "mcqa",
        "same twice",
        "        return gymq.Verdict(reward,",
        '        self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1\n'
        "        return gymq.Verdict(reward * (self.calls % 2),",
        "first reward",
    ),
    "a verdict that depends on how many are asked for": Fault(
        "mcqa",
        "under load",
        "        row = request.row\n",
        "        row = request.row\n"
        "        import asyncio\n\n"
        '        self.__dict__["busy"] = self.__dict__.get("busy", 0) + 1\n'
        "        alone = self.busy == 1\n"
        "        await asyncio.sleep(0)\n"
        '        self.__dict__["busy"] -= 1\n'
        "        if not alone:\n"
        "            return gymq.Verdict(0.0)\n",
        "under load reward 0",
    ),
    "NaN within every bound": Fault(
        "circle_click",
        "NaN",
        "        hit = target is not None and x is not None and y is not None and contains(target, x, y)\n",
        '        clicked = json.loads(request.function_calls[0]["arguments"]) if request.function_calls else {}\n'
        '        x, y = clicked.get("x", -9e9), clicked.get("y", -9e9)\n'
        "        hit = target is not None and not (abs(x - target.x) > 9 or abs(y - target.y) > 9)\n"
        "        x = y = None\n",
        "NaN for each number of the gold reply",
    ),
    "a secret in the verdict": Fault(
        "google_search",
        "secrets",
        "parsed_option=option)",
        "parsed_option=option, key=self.options.google_api_key.get_secret_value())",
        "the verdict: it holds the value of an option that is a secret",
    ),
    "a row that breaks the verifier": Fault(
        "mcqa",
        "malformed rows",
        '(row.expected_answer or "").strip()',
        "row.expected_answer.strip()",
        "verifier_failed",
    ),
    "a reply that breaks the verifier": Fault(
        "mcqa",
        "unicode",
        MCQA_CHOICES,
        MCQA_CHOICES + '        reply.encode("cp1252")\n',
        "verifier_failed",
    ),
}


def copied(name: str, folder: Path) -> Path:
    """A copy of a worker."""
    return Path(
        shutil.copytree(RESOURCES / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    )


TAKES_LONG = {"squared work"}


@pytest.mark.parametrize(
    "fault",
    [pytest.param(one, id=name, marks=[pytest.mark.nightly] * (name in TAKES_LONG)) for name, one in FAULTS.items()],
)
async def test_it_is_found(fault, tmp_path, monkeypatch):
    # Squared work on the longest replies takes a minute, and a machine that is fast enough would try them.
    monkeypatch.setattr(checks, "REPEATED_CHARS", checks.REPEATED_CHARS[:-1])
    place = copied(fault.worker, tmp_path)
    code = (place / "worker.py").read_text()
    assert code.count(fault.old) == 1
    (place / "worker.py").write_text(code.replace(fault.old, fault.new))
    report = await audit(str(place), only=[fault.found_by])
    assert not report.ok
    assert fault.said in "\n".join(report.problems)


@pytest.mark.parametrize(
    ("worker", "checks"),
    [
        (worker, sorted({fault.found_by for fault in FAULTS.values() if fault.worker == worker}))
        for worker in sorted({fault.worker for fault in FAULTS.values()})
    ],
)
async def test_without_the_fault_nothing_is_found(worker, checks, tmp_path):
    report = await audit(str(copied(worker, tmp_path)), only=checks)
    assert [check.name for check in report.checks if check.status == "ok"] == [check.name for check in report.checks]
    assert sorted(check.name for check in report.checks) == checks


async def test_a_judge_without_a_rule_is_no_decision(tmp_path):
    place = copied("text_to_sql", tmp_path)
    gold = place / "data" / "gold.jsonl"
    gold.write_text(gold.read_text().replace('{"say": "They differ. [[A!=B]]"}', '{"say": "", "if": "never"}'))
    with pytest.raises(UsageError, match="undecided without a judge"):
        await audit(str(place))


async def test_a_component_that_is_not_there_is_no_decision(tmp_path):
    place = copied("http_resources", tmp_path)
    (place / "tests" / "mocks.py").unlink()
    config = place / "config.yaml"
    config.write_text(config.read_text().replace("http://127.0.0.1:8000", "http://127.0.0.1:9"))
    with pytest.raises(UsageError, match="the correct reply is undecided"):
        await audit(str(place), only=["gold"])


async def test_an_environment_without_right_replies_is_not_audited(tmp_path):
    place = copied("mcqa", tmp_path)
    (place / "data" / "gold.jsonl").unlink()
    with pytest.raises(UsageError, match="gold replies are missing"):
        await audit(str(place))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"row": 9, "reply": "A"}', "data/example.jsonl has 5 rows"),
        ('{"reply": 1}', r"gold.jsonl:1: .*reply"),
        ('{"reply": "A", "may_pass": {"luck": "."}}', "`may_pass` names luck"),
        ('{"reply": "A", "rewards": 1}', "rewards"),
        ("{", "gold.jsonl:1"),
    ],
)
async def test_a_bad_line_of_gold_is_refused(line, said, tmp_path):
    place = copied("mcqa", tmp_path)
    (place / "data" / "gold.jsonl").write_text(line + "\n")
    with pytest.raises(UsageError, match=said):
        await audit(str(place))


async def test_a_name_that_nothing_has_is_refused():
    with pytest.raises(UsageError, match="--only noise: neither a check nor a reply has this name"):
        await audit("mcqa", only=["gold", "noise"])


async def test_a_check_that_an_environment_has_no_use_for_is_known_all_the_same():
    report = await audit("mcqa", only=["an idle session", "tools", "secrets"])
    assert report.ok
    assert {check.status for check in report.checks} == {"none"}
