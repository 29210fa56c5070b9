"""text_to_sql: a question in plain words, answered by a SQL query. A judge model compares it with a reference query.

The judge is asked twice, with the queries in both orders. Nothing is executed.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import pydantic
from gymq.workers.resources.text_to_sql.prompts import COMPARISON, EQUAL, INSTRUCTIONS, NOT_EQUAL

import gymq
from gymq import responses
from gymq.ext.text import code_blocks
from gymq.judge import Comparison, EqualityOptions, JudgedEnvironment, Judgement, Label, Labels, Question, compare

_STATEMENT = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP)\s", re.IGNORECASE)
# In prose only what asks or changes data: "create" and "drop" are words of any explanation.
_BARE_STATEMENT = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH)\s", re.IGNORECASE)

_OTHER_NAMES = {"postgres": "postgresql", "pg": "postgresql", "sqlite3": "sqlite"}


def _usual_name(dialect: Any) -> Any:
    if not isinstance(dialect, str):
        return dialect
    name = dialect.strip().lower()
    return _OTHER_NAMES.get(name, name)


class SqlRow(gymq.Row):
    sql: str  # reference query; may be empty
    sql_dialect: Annotated[Literal["mysql", "postgresql", "sqlite"], pydantic.BeforeValidator(_usual_name)]
    sql_prompt: str  # the question
    sql_context: str = ""  # statements that make the tables and their rows
    uuid: str | int | None = None
    metadata: dict[str, Any] | None = None


class SqlOptions(EqualityOptions):
    judge_system_message: str | None = INSTRUCTIONS
    judge_equal_label: Label = EQUAL
    judge_not_equal_label: Label = NOT_EQUAL
    check_twice_swap: bool = True


class TextToSql(JudgedEnvironment[SqlRow]):
    """Reward 1 if a judge finds the query to answer the question like the reference query, asked in both orders."""

    Options = SqlOptions

    reward_range = (0.0, 1.0)

    async def start(self) -> None:
        labels = Labels.exactly(self.options.judge_equal_label, self.options.judge_not_equal_label)
        self._question = Question(COMPARISON, labels, self.options.hardened)
        low, high = type(self).reward_range
        self.reward_range = (min(low, self.options.reward_if_swap_fails), max(high, self.options.reward_if_swap_fails))

    async def verify(self, request: gymq.VerifyRequest[SqlRow]) -> gymq.Verdict:
        row = request.row
        query = find_query(request.reply_text)
        reward, reason, evaluations = 0.0, "no_sql_extracted", []
        if query:
            comparison = await self._compare(row, query)
            evaluations = comparison.members()
            if comparison.agrees:
                reward, reason = 1.0, "none"
            else:
                reward = self.options.reward_if_swap_fails if comparison.swap_fails else 0.0
                reason = "judge_evaluation_failed"
        return gymq.Verdict(
            reward,
            sql_dialect=row.sql_dialect,
            sql_context=row.sql_context,
            model_output=request.reply_text,
            extracted_sql=query,
            judge_passed=reason == "none",
            failure_reason=reason,
            judge_evaluations=evaluations,
            uuid=row.uuid,
            metadata=row.metadata,
        )

    async def _compare(self, row: SqlRow, query: str) -> Comparison:
        async def ask(query_a: str, query_b: str) -> Judgement:
            prompt = COMPARISON.fill(
                dialect=row.sql_dialect,
                context=row.sql_context,
                question=row.sql_prompt,
                query_a=query_a,
                query_b=query_b,
            )
            return await self.judge.ask(prompt, lambda said: self._question.label_in(responses.assistant_text(said)))

        equal, swap = self.options.judge_equal_label, self.options.check_twice_swap
        return await compare(ask, row.sql, self._question.material(query), equal_label=equal, swap=swap)


def find_query(reply: str) -> str | None:
    """Return the query a reply answers with; empty if its block is, None if there is none.

    It is what stands in the last block fenced with the tag `sql`; or else the last fenced block without a tag that
    begins like a statement; or else the text from the first keyword of a statement to the last semicolon after it, or
    to the end. A query found in that last way ends with one semicolon.
    """
    blocks = [block for block in reversed(code_blocks(reply)) if block.is_closed]
    tagged = [block.text.strip() for block in blocks if block.tag.lower() == "sql"]
    if tagged:
        return tagged[0]
    for block in blocks:
        query = f"{block.tag}{block.text}".strip()
        if _STATEMENT.match(query):
            return query
    bare = _BARE_STATEMENT.search(reply)
    if bare is None:
        return None
    start, semicolon = bare.start(), reply.rfind(";")
    query = reply[start : semicolon + 1] if semicolon > start else reply[start:]
    return query.strip().rstrip(";") + ";"
