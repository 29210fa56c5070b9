"""Rewards that an earlier version of a verifier's file gave, and the command that verifies their rollouts again."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gymq.data.jsonl import JsonlFile, numbered_lines
from gymq.data.rows import AgentRef, decode_line
from gymq.data.run_changes import RecordedInstance, source_digest
from gymq.data.run_files import Manifest, RunFiles
from gymq.render import counted


class _Result(msgspec.Struct):
    agent_ref: AgentRef | None = None


class OlderRewards(NamedTuple):
    """Rewards of a run that are older than the file of their verifier."""

    sentence: str
    command: str  # which verifies them again

    def __str__(self) -> str:
        return f"{self.sentence} {self.command}"


def older_rewards(files: RunFiles) -> Iterator[OlderRewards]:
    """Yield for each verifier's file that changed since it gave rewards of a run how many these are."""
    manifest = files.read_manifest()
    if manifest is None:
        return
    older: Counter[str] = Counter()
    changed: dict[str, str] = {}
    for agent in manifest.config:
        verifier = _verifier(manifest.config, agent)
        now = "" if verifier is None else source_digest(verifier.implementation)
        if verifier is None or not now or not verifier.source or now in manifest.scored:
            continue
        if now != verifier.source:
            changed[agent] = _file(verifier)
        else:
            older[_file(verifier)] += manifest.older_rewards.get(agent, 0)
    for agent, count in rewards_of(files.output, changed).items():
        older[changed[agent]] += count
    for file, count in (+older).items():
        are = "is" if count == 1 else "are"
        sentence = f"{counted(count, 'reward')} {are} older than {Path(file).name}; this verifies them again:"
        yield OlderRewards(sentence, score_command(files.output, manifest))


def score_command(rollouts: Path, manifest: Manifest) -> str:
    """Return the command that verifies rollouts of a run again."""
    output = rollouts.with_name(f"{rollouts.stem}_scored.jsonl")
    replacing = ["--overwrite"] if output.exists() else []
    verifiers = manifest.score_with or ["--resources", "FILE.py"]
    return shlex.join(["gymq", "score", "--rollouts", str(rollouts), "--output", str(output), *verifiers, *replacing])


def rewards_of(output: Path, agents: Collection[str]) -> dict[str, int]:
    """Return how many results of each of these agents an output has."""
    counts = dict.fromkeys(agents, 0)
    for _, where, line in numbered_lines(JsonlFile(output)) if agents and output.exists() else ():
        agent = decode_line(line, _Result, where).agent_ref
        if agent is not None and agent.name in counts:
            counts[agent.name] += 1
    return counts


def agents_with_changed_verifier(
    before: Mapping[str, RecordedInstance], now: Mapping[str, RecordedInstance]
) -> list[str]:
    """Return the agents in both configurations whose verifier's file has another content now."""
    found = []
    for agent in before.keys() & now.keys():
        old, new = _verifier(before, agent), _verifier(now, agent)
        if old is not None and new is not None and old.source and new.source and old.source != new.source:
            found.append(agent)
    return found


def _verifier(config: Mapping[str, RecordedInstance], agent: str) -> RecordedInstance | None:
    found = config.get(agent)
    return None if found is None else config.get(str(found.options.get("resources_server.name")))


def _file(verifier: RecordedInstance) -> str:
    return verifier.implementation.partition(":")[0]
