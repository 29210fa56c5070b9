"""What stands in the documents is true: their code runs, their commands work, their links lead somewhere."""

import re

import pytest

from .blocks import ROOT, RUN, blocks_of, play

DOCUMENTS = [
    ROOT / "README.md",
    *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
    ROOT / "workers" / "agents" / "simple_agent" / "README.md",
    ROOT / "workers" / "agents" / "program_agent" / "README.md",
]
WITH_CODE = [document for document in DOCUMENTS if any(block.purpose for block in blocks_of(document))]
_LONG = ("adoption", "bridge", "configuration", "integrations", "migration", "rows", "trainers", "turns", "tutorial")
LONG = {
    *(ROOT / "docs" / f"{name}.md" for name in _LONG),
    ROOT / "workers" / "agents" / "program_agent" / "README.md",
}

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def name_of(document):
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize(
    "document",
    [pytest.param(one, marks=pytest.mark.nightly) if one in LONG else one for one in WITH_CODE],
    ids=name_of,
)
def test_the_code_of_a_document_runs(document, tmp_path):
    assert not play(document, tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_python_of_a_document_is_left_out(document):
    python = [block for block in blocks_of(document) if block.language == "python"]
    assert not [block.line for block in python if block.purpose != RUN and not block.is_file]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_a_block_that_shows_an_example_is_the_file(document):
    shown = [block for block in blocks_of(document) if block.purpose.startswith("examples/")]
    assert not [block.line for block in shown if block.text != (ROOT / block.purpose).read_text(encoding="utf-8")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_the_links_of_a_document_lead_somewhere(document):
    dead = []
    for link in _LINK.findall(_FENCED.sub("", document.read_text(encoding="utf-8"))):
        if link.startswith(("https://", "http://")):
            continue
        place, _, anchor = link.partition("#")
        target = (document.parent / place).resolve() if place else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


def anchors(document):
    """The anchors that a viewer makes of the headings."""
    headings = _HEADING.findall(_FENCED.sub("", document.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_agent_shown_is_the_one_that_is_there():
    page = ROOT / "docs" / "writing_agents.md"
    shown = [block.text for block in blocks_of(page) if block.purpose == "simple_agent.py"]
    assert shown == [(ROOT / "workers" / "agents" / "simple_agent" / "worker.py").read_text(encoding="utf-8")]
