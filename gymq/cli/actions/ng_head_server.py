"""The work of `ng_collect_rollouts` with a head server elsewhere: rows over HTTP, to the agents that it lists."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from gymq.bridge.client import Row, run_examples
from gymq.cli.actions.collect import materialise_options, read_prompt
from gymq.cli.actions.profile import profile_files
from gymq.cli.shared.errors import UsageError
from gymq.data.datasets import Dataset
from gymq.data.failure_status import RowFailed
from gymq.data.jsonl import atomic_write
from gymq.data.materialise import Materialisation
from gymq.data.rows import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX, RowKey
from gymq.data.run_files import Appender, RunFiles
from gymq.defaults import DEFAULT_WINDOW, PASS_THRESHOLD
from gymq.redaction import redact
from gymq.render import counted, say

CONNECT_S = 30.0
_SHOWN_FAILURES = 5
_SHOWN_CHARS = 500
_AGENTS = "responses_api_agents"


def collect_from(head: Mapping[str, Any], options: Mapping[str, Any], api_key: str | None) -> int:
    """Roll out a data set with the servers that a head server lists: those of gymq's bridge, or of NeMo Gym.

    Rows whose result is in the output already are left out; failed ones are not in it, so that the same command with
    `+resume_from_cache=true` tries them again.

    Args:
        head: `host` and `port`.
        options: of `gymq collect`, as `ng.collection_of` returns them.
        api_key: of the bridge, if it wants one.
    """
    return asyncio.run(_collect(f"http://{_reachable(head['host'])}:{head['port']}", options, api_key))


async def _collect(url: str, options: Mapping[str, Any], api_key: str | None) -> int:
    agents = await _agents_of(url, api_key)
    files = RunFiles(options["output"])
    with files.held():
        rows = _rows(options)
        unknown = sorted({row[AGENT_REF]["name"] for row in rows} - agents.keys())
        if unknown:
            raise UsageError(f"{url} lists no agent {unknown[0]}; there are: {', '.join(sorted(agents)) or 'none'}")
        if options["overwrite"]:
            files.remove()
        with atomic_write(files.materialised) as file:
            file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
        done = _finished(files.output)
        wanted = [row for row in rows if (row[TASK_INDEX], row[ROLLOUT_INDEX]) not in done]
        say(f"{counted(len(wanted), 'rollout')} at {url}, written to {files.output}")
        failed = await _roll_out(wanted, agents, files.output, options["concurrency"] or DEFAULT_WINDOW, api_key)
    if len(failed) < len(rows):
        profile_files(files.materialised, files.output, True, None, None, PASS_THRESHOLD, False)
    for failure in failed[:_SHOWN_FAILURES]:
        say(f"failed: {redact(str(failure))[:_SHOWN_CHARS]}")
    if failed:
        say(f"{counted(len(failed), 'rollout')} failed; the same command with +resume_from_cache=true tries again")
    return 3 if failed else 0


def _rows(options: Mapping[str, Any]) -> list[Row]:
    prompt = options["prompt_config"]
    settings = materialise_options(
        agent_name=options["agent"],
        limit=options["limit"],
        num_repeats=options["num_repeats"] or 1,
        num_repeats_add_seed=options["num_repeats_add_seed"],
        responses_create_params=options["responses_create_params"],
        prompt=None if prompt is None else read_prompt(prompt),
    )
    with Materialisation(settings) as made:
        rows = [msgspec.json.decode(row.json) for row in made.rows(Dataset(options["input"]))]
    for warning in made.warnings:
        say(f"warning: {warning}")
    return rows


def _finished(output: Path) -> set[tuple[int, int]]:
    if not output.exists():
        return set()
    keys = (msgspec.json.decode(line, type=RowKey) for line in Dataset(output))
    return {(key.task_index, key.rollout_index) for key in keys}


async def _roll_out(
    rows: list[Row], agents: Mapping[str, str], output: Path, concurrency: int, api_key: str | None
) -> list[RowFailed]:
    """Write each result as it arrives; return the failures."""
    failed: list[RowFailed] = []
    limit = asyncio.Semaphore(concurrency)

    async def of_agent(name: str, of_it: list[Row]) -> None:
        for result in run_examples(agents[name], of_it, limit=limit, api_key=api_key):
            try:
                row, answer = await result
            except RowFailed as failure:
                failed.append(failure)
                continue
            lines.write(
                msgspec.json.encode(answer | {name: row[name] for name in (TASK_INDEX, ROLLOUT_INDEX, AGENT_REF)})
            )
            lines.flush()

    by_agent: dict[str, list[Row]] = {}
    for row in rows:
        by_agent.setdefault(row[AGENT_REF]["name"], []).append(row)
    with closing(Appender(output)) as lines:
        await asyncio.gather(*(of_agent(name, of_it) for name, of_it in by_agent.items()))
    return failed


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


def _reachable(host: str) -> str:
    """Return the address of a server that listens at `host`: no client can connect to all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
