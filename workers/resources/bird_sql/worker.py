"""bird_sql: the reply's query has to give the rows of the reference query on the row's database."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pydantic
from gymq.workers.resources.bird_sql.databases import Databases

import gymq
from gymq.ext.text import code_blocks
from gymq.responses import conclusion
from gymq.sandboxed import SandboxedOptions

_OPENING, _FENCE = "```sql", "```"
_LETTER = re.compile(r"[a-zA-Z]")
_BLANKS = re.compile(r"\s+")
_BOLD = "**"

NO_QUERY = "SELECT 1"  # what is reported in place of a query; it is not run
FOLDER_OF_DATABASES = Path("dev_20240627") / "dev_databases"


class QuestionRow(gymq.Row):
    question: str
    gt_sql: str
    db_id: str
    difficulty: str | None = None
    id: int | None = None


class BirdSql(gymq.SandboxedEnvironment[QuestionRow]):
    """Reward 1 if the query gives the same set of rows as the reference query on the row's database."""

    class Options(SandboxedOptions):
        bird_sql_dir: Path = Path(__file__).parent / ".bird_sql"
        databases: Path | None = None  # default: where they are in `bird_sql_dir`
        max_concurrency: pydantic.PositiveInt = 32
        sql_execution_timeout_s: pydantic.PositiveFloat = 30.0
        hardened: bool = True  # false: the peer's comments, which end with the query

    reward_range = (0.0, 1.0)

    async def start(self) -> None:
        options = self.options
        self._query = query_as_written if options.hardened else published_query
        if options.sandbox.provider == "docker":
            raise gymq.OptionsError(f"{self.name}: sandbox.provider: databases cannot be copied into containers")
        at_a_time = min(options.max_concurrency, os.cpu_count() or 1)  # queries compute, and copies take memory
        await super().start()
        self._databases = Databases(
            self.sandbox, options.sandbox, self._folder(), at_a_time, options.sql_execution_timeout_s
        )

    async def stop(self) -> None:
        await self._databases.close()
        await super().stop()

    def _folder(self) -> Path:
        """Return the folder of the databases."""
        named = self.options.databases or self.options.bird_sql_dir / FOLDER_OF_DATABASES
        folder = next((path for path in (named, Path(__file__).parent / named) if path.is_dir()), None)
        if folder is None:
            raise gymq.OptionsError(f"{self.name}: the folder {named} does not exist; see the README for the databases")
        return folder

    async def verify(self, request: gymq.VerifyRequest[QuestionRow]) -> gymq.Verdict:
        row, text = request.row, request.reply_text
        query = self._query(text)
        finding = await self._databases.finding(row.db_id, row.gt_sql, query)
        match finding:
            case "equal":
                reason = "none"
            case "reference_failed":
                reason = "gold_execution_error"
            case _:
                reason = "no_sql_extracted" if query is None else "execution_error"
        return gymq.Verdict(
            float(finding == "equal"),
            id=row.id,  # a whole number, also where the row has it as text
            difficulty=row.difficulty,
            model_output=text,
            extracted_sql=NO_QUERY if query is None else query,
            had_codeblock=query is not None,
            execution_match=finding == "equal",
            failure_reason=reason,
        )


def query_as_written(reply: str) -> str | None:
    """Return the last block with the tag `sql`; comments and texts in it are for the database to read."""
    blocks = code_blocks(conclusion(reply), "sql", "sqlite")
    return blocks[-1].text.strip() if blocks else None


def published_query(reply: str) -> str | None:
    """Return the query in one line, without comments, of which two dashes begin one wherever they stand."""
    block = _last_block(reply)
    if block is None:
        return None
    query = _BLANKS.sub(" ", _without_comments(block))
    if query.startswith(_BOLD) and (end := query.rfind(_BOLD)) >= len(_BOLD):
        query = query[end + len(_BOLD) :]
    return query.strip()


def _last_block(text: str) -> str | None:
    """Return the last text between an opening fence and the next fence behind its first letter."""
    found, position = None, 0
    while (start := text.find(_OPENING, position)) >= 0:
        start += len(_OPENING)
        letter = _LETTER.search(text, start)
        end = -1 if letter is None else text.find(_FENCE, letter.end())
        if end < 0:
            break
        found, position = text[start:end], end + len(_FENCE)
    return found


def _without_comments(block: str) -> str:
    kept, position = [], 0
    while (start := block.find("/*", position)) >= 0 and (end := block.find("*/", start + 2)) >= 0:
        if block.find("--", position, start + 1) >= 0:
            break
        kept.append(block[position:start])
        position = end + 2
    rest, _, _ = block[position:].partition("--")
    return "".join([*kept, rest])
