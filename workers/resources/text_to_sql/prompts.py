"""The default prompts of the judge."""

from __future__ import annotations

from gymq.judge import PromptTemplate

EQUAL = "[[A=B]]"
NOT_EQUAL = "[[A!=B]]"

INSTRUCTIONS = f"""\
You are an experienced database engineer and compare two SQL queries that were written for the same question. Decide
whether both answer the question with the same result, on every database that fits the given schema, not only on the
rows you may be shown. Do not prefer a query because of its place.

These differences do not matter:
- layout, upper or lower case of keywords, comments, quoting of names, a semicolon at the end
- names of aliases, and whether a column is qualified by its table
- how tables are combined: JOIN or a condition in WHERE, IN or EXISTS, a subquery or a common table expression
- columns beyond those the question asks for, and the order of the columns
- how many decimals a number is rounded to, unless the question says how many

These differences matter:
- which rows are kept: filters, boundaries (> or >=), dates, text patterns and their case
- what is computed: the aggregate, its argument, the grouping, a condition in HAVING
- DISTINCT or duplicates, where the result would have other rows
- ORDER BY, where the question asks for an order, and always together with LIMIT or OFFSET
- NULL: outer or inner joins, COUNT(*) or COUNT(column), NOT IN with a subquery that can give NULL
- for statements that change data or tables: which rows, columns and values are changed

Mind the dialect:
- MySQL compares text without regard to case under its default collations, and `/` is a division with decimals
- PostgreSQL compares text exactly, has ILIKE, and `/` of two integers cuts the decimals off
- SQLite compares text exactly but LIKE without regard to case, converts types as it needs them, and `/` of two
  integers cuts the decimals off
A query that the given dialect cannot run does not answer the question.

Explain briefly what each query gives. Then finish with exactly one of these labels:
{EQUAL} if both answer the question alike,
{NOT_EQUAL} if they do not."""

COMPARISON = PromptTemplate(
    """\
Dialect: {dialect}

Schema and data:
{context}

Question:
{question}

Query A:
<query_a>
{query_a}
</query_a>

Query B:
<query_b>
{query_b}
</query_b>""",
    *("dialect", "context", "question", "query_a", "query_b"),
)
