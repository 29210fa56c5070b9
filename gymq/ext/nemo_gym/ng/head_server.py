"""The work of `ng_collect_rollouts` with a head server elsewhere: rows over HTTP, to the agents that it lists."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from gymq.cli.actions.collect import collect_options
from gymq.cli.shared.parameters import CollectArguments
from gymq.config import load
from gymq.data.datasets import Dataset
from gymq.data.jsonl import JsonlFile, atomic_write, numbered_lines, truncate_torn_line
from gymq.data.materialise import Materialisation
from gymq.data.rows import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX, RowKey, decode_line
from gymq.data.run_files import Appender
from gymq.errors import UsageError
from gymq.ext.nemo_gym.client import Row, RowClient
from gymq.ext.shared.addresses import reachable
from gymq.ext.shared.printed_statistics import profile_files
from gymq.ext.shared.row_failed import RowFailed
from gymq.redaction import hide, redact
from gymq.render import counted, say
from gymq.runs.collection.plan import RunPlan

CONNECT_S = 30.0
_SHOWN_CHARS = 500
_AGENTS = "responses_api_agents"


def collect_from(
    head: Mapping[str, Any], options: CollectArguments, params: Mapping[str, Any], api_key: str | None
) -> int:
    """Roll out a data set with the servers that a head server lists: those of gymq's bridge, or of NeMo Gym.

    Rows whose result is in the output already are left out; failed ones are not in it, so that the same command with
    `+resume_from_cache=true` tries them again.

    Args:
        head: `host` and `port`.
        options: as `collection_of` returns them.
        params: sampling parameters that replace those of the rows.
        api_key: of the bridge, if it wants one.
    """
    hide(api_key or "")
    plan = RunPlan(collect_options(options, params, load([], [])))
    return asyncio.run(_collect(f"http://{reachable(head['host'])}:{head['port']}", plan, api_key))


async def _collect(url: str, plan: RunPlan, api_key: str | None) -> int:
    agents = await _agents_of(url, api_key)
    plan.check_paths()
    files = plan.files
    with files.locked():
        done = set() if plan.options.overwrite else _finished(files.output)
        num_rows, num_wanted = _materialise(plan, agents, url, done)
        say(f"{counted(num_wanted, 'rollout')} at {url}, written to {files.output}")
        rows = (msgspec.json.decode(line) for line in Dataset(files.materialised))
        wanted = (row for row in rows if (row[TASK_INDEX], row[ROLLOUT_INDEX]) not in done)
        failures = await _roll_out(wanted, agents, files.output, plan.options.window, api_key)
    if failures.count < num_rows:
        profile_files(files.output, files.materialised, files.report)
    for failure in failures.first:
        say(f"failed: {redact(str(failure))[:_SHOWN_CHARS]}")
    if failures.count:
        say(f"{counted(failures.count, 'rollout')} failed; the same command with +resume_from_cache=true tries again")
    return 3 if failures.count else 0


def _materialise(
    plan: RunPlan, agents: Collection[str], url: str, done: Collection[tuple[int, int]]
) -> tuple[int, int]:
    """Write the rows of the run; return how many there are, and how many of them have no result yet.

    Raises:
        UsageError: an agent of the rows is not there; the files stay as they were.
    """
    files = plan.files
    num_rows = num_wanted = 0
    with Materialisation(plan.options.materialise) as made, atomic_write(files.materialised) as file:
        for row in made.rows(plan.dataset):
            if row.agent not in agents:
                raise UsageError(f"{url} lists no agent {row.agent}; there are: {', '.join(sorted(agents)) or 'none'}")
            file.write(row.json + b"\n")
            num_rows += 1
            num_wanted += (row.task_index, row.rollout_index) not in done
        if plan.options.overwrite:
            files.remove()
    for warning in made.warnings:
        say(f"warning: {warning}")
    return num_rows, num_wanted


def _finished(output: Path) -> set[tuple[int, int]]:
    if not output.exists():
        return set()
    truncate_torn_line(output)
    keys = (decode_line(line, RowKey, where) for _, where, line in numbered_lines(JsonlFile(output)))
    return {(key.task_index, key.rollout_index) for key in keys}


@dataclass
class _Failures:
    """The rollouts without a result: how many, and some of them."""

    count: int = 0
    first: list[RowFailed] = field(default_factory=list)


async def _roll_out(
    rows: Iterator[Row], agents: Mapping[str, str], output: Path, concurrency: int, api_key: str | None
) -> _Failures:
    """Write each result as it arrives; only the rows that are in flight are in memory."""
    failures = _Failures()

    async def work() -> None:
        for row in rows:  # shared by all
            try:
                answer = await clients[row[AGENT_REF]["name"]].run(row)
            except RowFailed as failure:
                failures.count += 1
                failures.first += [failure] if len(failures.first) < 5 else []
                continue
            lines.write(
                msgspec.json.encode(answer | {name: row[name] for name in (TASK_INDEX, ROLLOUT_INDEX, AGENT_REF)})
            )
            lines.flush()

    async with AsyncExitStack() as stack:
        lines = stack.enter_context(closing(Appender(output)))
        clients = {name: await stack.enter_async_context(RowClient(url, api_key)) for name, url in agents.items()}
        await asyncio.gather(*(work() for _ in range(concurrency)))
    return failures


async def _agents_of(url: str, api_key: str | None) -> dict[str, str]:
    """Return the URL of each agent that a head server lists."""
    timeout = aiohttp.ClientTimeout(total=CONNECT_S)
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.get(f"{url}/server_instances") as answer,
        ):
            content = await answer.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        why = str(error) or f"no answer within {CONNECT_S:g} s"
        raise UsageError(f"the head server {url} cannot be asked: {why}") from None
    if answer.status != 200:
        text = content.decode(errors="replace")[:_SHOWN_CHARS]
        raise UsageError(f"the head server {url} answered with status {answer.status}: {redact(text)}")
    try:
        listed = msgspec.json.decode(content, type=list[_Instance])
    except msgspec.MsgspecError as error:
        raise UsageError(f"{url}/server_instances is not the list of a head server: {error}") from None
    return {one.process_name: one.url for one in listed if one.server_type == _AGENTS and one.url}


class _Instance(msgspec.Struct):
    process_name: str
    server_type: str | None = None
    url: str | None = None
