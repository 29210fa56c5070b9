"""Every environment that comes with gymq passes the audit."""

from pathlib import Path

import pytest

import gymq
from gymq.errors import UsageError
from gymq.execution.loading.registry import WorkerNotFound
from gymq.ext.audit.auditing import audit
from gymq.ext.audit.report import CHECKS

RESOURCES = Path(__file__).parents[3] / "workers" / "resources"
NAMES = sorted(path.parent.name for path in RESOURCES.glob("*/worker.py"))

# Their verifier is the one of math_with_judge, which gets the replies that take all the time that they are given.
SLOW = {"repeated text", "huge", "deep", "growth"}
# With google_search the first box counts, as recorded cases have it: an answer that is taken back keeps its reward.
LEFT_OUT = {"google_search": {"near misses"}, "ns_tools": SLOW, "polymath": SLOW}

# One of each kind: letters, texts, calls, state, a judge. The audits of all take some minutes.
OF_EACH_KIND = {"example_session_state_mgmt", "mcqa", "simpleqa", "string_match", "xlam_fc"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in OF_EACH_KIND else [pytest.mark.nightly]) for name in NAMES]
)
async def test_it_passes(name):
    try:
        report = await audit(name, only=[check for check in CHECKS if check not in LEFT_OUT.get(name, ())])
    except (WorkerNotFound, gymq.OptionsError, UsageError) as error:
        if "pip install" in str(error):
            pytest.skip(str(error))  # an extra is missing
        raise
    assert report.ok, "\n".join(report.problems)
    gold = next(check for check in report.checks if check.name == "gold")
    assert gold.status == "ok"
