import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import psutil
import pytest
from gymq.workers.resources.bird_sql.worker import BirdSql, published_query, query_as_written

import gymq
from gymq.failures import ComponentFailed
from gymq.testing import Harness, prompt, reply

DATA = Path(__file__).parents[1] / "data"
EXAMPLES = [json.loads(line) for line in (DATA / "example.jsonl").read_text(encoding="utf-8").splitlines()]
OPTIONS = {"databases": "data/databases"}
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


def row(reference: str, database: str = "orchard") -> dict[str, Any]:
    return {**prompt("q"), "question": "q", "gt_sql": reference, "db_id": database}


def block(query: str) -> dict[str, Any]:
    return reply(f"```sql\n{query}\n```")


async def reasons(pairs: list[tuple[dict[str, Any], str]], **options: Any) -> list[str]:
    async with Harness(BirdSql, {**OPTIONS, **options}) as env:
        verdicts = await asyncio.gather(*(env.verify(given, block(query)) for given, query in pairs))
    return [verdict.fields["failure_reason"] for verdict in verdicts]


async def test_the_references_agree_with_themselves():
    assert await reasons([(given, given["gt_sql"]) for given in EXAMPLES]) == ["none"] * 5


async def test_rows_are_compared_as_sets():
    pairs = [
        ("SELECT 1, 'a'", "SELECT 1.0 AS x, 'a' UNION ALL SELECT 1, 'a'", True),
        ("SELECT 1, 2", "SELECT 2, 1", False),
        ("SELECT 1", "SELECT 1, NULL", False),
        ("SELECT 5", "SELECT '5'", False),
        ("SELECT 'a'", "SELECT 'A'", False),
        ("SELECT NULL", "SELECT NULL;", True),
        ("SELECT 0.3", "SELECT 0.1 + 0.2", False),
        ("SELECT X'00ff'", "SELECT X'00FF'", True),
        ("SELECT 'ab'", "SELECT CAST(X'61FF62' AS TEXT)", True),
        ("SELECT kind FROM tree WHERE 0", "SELECT 7 FROM tree WHERE 0", True),
    ]
    found = await reasons([(row(reference), query) for reference, query, _ in pairs])
    assert found == ["none" if agree else "execution_error" for _, _, agree in pairs]


async def test_queries_that_do_more_than_read_fail_and_change_nothing():
    empty = "SELECT kind FROM tree WHERE 0"
    hostile = [
        "DELETE FROM tree",
        "INSERT INTO tree VALUES (9, 'fig', 1, 1) RETURNING kind",
        "UPDATE tree SET kind = 'x'",
        "UPDATE sqlite_master SET sql = '' RETURNING name",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x AS SELECT 1",
        "DROP TABLE harvest",
        "ATTACH '/database/other.sqlite' AS other",
        "VACUUM INTO '/database/other.sqlite'",
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "PRAGMA journal_mode = DELETE",
        "BEGIN",
        "SELECT load_extension('/database/orchard.sqlite')",
        "SELECT 1 WHERE 0; DELETE FROM tree",
        "/* nothing */",
        "",
    ]
    pairs = [(row(empty), query) for query in hostile if query]
    everything = row("SELECT * FROM tree")
    found = await reasons([*pairs, (everything, "SELECT * FROM tree"), (row(empty), "-- a\n" + empty)])
    assert found == ["execution_error"] * len(pairs) + ["none", "none"]


async def test_everything_that_only_reads_is_allowed():
    queries = [
        "PRAGMA table_info(tree)",
        "SELECT name FROM pragma_table_info('tree')",
        "SELECT value FROM json_each('[1, 2]')",
        "EXPLAIN QUERY PLAN SELECT * FROM tree",
        f"{ENDLESS} SELECT x FROM n LIMIT 3",
    ]
    assert await reasons([(row(query), query) for query in queries]) == ["none"] * len(queries)


async def test_limits_end_a_query_and_the_next_one_is_answered():
    queries = [
        f"{ENDLESS} SELECT COUNT(*) FROM n",
        f"{ENDLESS} SELECT x FROM n",
        "SELECT zeroblob(1000000000)",
        f"{ENDLESS} SELECT group_concat(zeroblob(60000000) || x) FROM n LIMIT 40",
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        f"{ENDLESS} SELECT 1 FROM n LIMIT 1000001",
    ]
    options = {"sql_execution_timeout_s": 0.5, "max_concurrency": 1}
    good = (EXAMPLES[0], EXAMPLES[0]["gt_sql"])
    found = await reasons([*((row("SELECT 1 WHERE 0"), query) for query in queries), good], **options)
    assert found == ["execution_error"] * len(queries) + ["none"]


async def test_a_query_that_cannot_be_interrupted_ends_its_sandbox_only(monkeypatch):
    monkeypatch.setattr("gymq.workers.resources.bird_sql.databases.GRACE_S", 0.25)
    slow = "SELECT instr(hex(zeroblob(20000000)), hex(zeroblob(2000000)) || '1')"
    options = {"sql_execution_timeout_s": 0.5, "max_concurrency": 1}
    pairs = [(row("SELECT 1"), slow), (row("SELECT 1"), "SELECT 1")]
    assert await reasons(pairs, **options) == ["execution_error", "none"]


async def test_an_unknown_database_is_an_error_of_the_reference():
    names = ["", ".", "..", "../databases/orchard", "fig", "orchard\0", "a" * 300, "/orchard"]
    found = await reasons([(row("SELECT 1", name), "SELECT 1") for name in names])
    assert found == ["gold_execution_error"] * len(names)


async def test_a_reference_without_result_earns_nothing():
    references = ["SELECT x FROM tree", "", "DELETE FROM tree", "SELECT 1; SELECT 2"]
    found = await reasons([(row(reference), reference or "SELECT 1") for reference in references])
    assert found == ["gold_execution_error"] * len(references)


async def test_without_a_block_nothing_is_run():
    async with Harness(BirdSql, OPTIONS) as env:
        verdict = await env.verify(row("SELECT 1"), reply("I do not know."))
        broken = await env.verify(row("SELECT"), reply("I do not know."))
    assert (verdict.reward, verdict.fields["failure_reason"]) == (0.0, "no_sql_extracted")
    assert (verdict.fields["extracted_sql"], verdict.fields["had_codeblock"]) == ("SELECT 1", False)
    assert broken.fields["failure_reason"] == "gold_execution_error"


async def test_a_number_as_text_comes_back_as_a_number():
    async with Harness(BirdSql, OPTIONS) as env:
        verdict = await env.verify(row("SELECT 1") | {"id": "7"}, block("SELECT 1"))
    assert (verdict.fields["id"], verdict.fields["difficulty"]) == (7, None)


async def test_another_database_takes_the_place_of_one_that_is_idle(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with sqlite3.connect(tmp_path / name / f"{name}.sqlite") as connection:
            connection.execute("CREATE TABLE word (text)")
            connection.execute("INSERT INTO word VALUES (?)", (name,))
    query = "SELECT text FROM word"
    async with Harness(BirdSql, {"databases": str(tmp_path), "max_concurrency": 1}) as env:
        for name in ("one", "two", "two", "one"):
            reference = row(f"SELECT '{name}' FROM word", name)
            assert (await env.verify(reference, block(query))).reward == 1.0
            assert [copy.name for copy in env.author._databases._idle] == [name]


async def test_a_sandbox_that_fails_is_no_reward():
    async with Harness(BirdSql, OPTIONS) as env:

        async def fail(*_):
            raise ComponentFailed("no more processes")

        env.author.sandbox.open = fail  # type: ignore[method-assign]
        with pytest.raises(gymq.RolloutError) as raised:
            await env.verify(EXAMPLES[0], block("SELECT 1"))
    assert raised.value.failure_class == gymq.FailureClass.COMPONENT_FAILED


async def test_a_sandbox_that_ended_while_it_was_idle_is_no_reward():
    async with Harness(BirdSql, OPTIONS) as env:
        given, right = EXAMPLES[0], block(EXAMPLES[0]["gt_sql"])
        assert (await env.verify(given, right)).reward == 1.0
        for process in psutil.Process().children(recursive=True):
            if "queries.py" in process.cmdline():
                process.kill()
                await asyncio.to_thread(process.wait)
        with pytest.raises(gymq.RolloutError) as raised:
            await env.verify(given, right)
        assert raised.value.failure_class == gymq.FailureClass.COMPONENT_FAILED
        assert (await env.verify(given, right)).reward == 1.0


async def test_a_file_that_is_no_database_earns_nothing(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "one.sqlite").write_text("x" * 5000)
    assert await reasons([(row("SELECT * FROM t", "one"), "SELECT 1")], databases=str(tmp_path)) == [
        "gold_execution_error"
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"databases": "missing"}, {**OPTIONS, "sandbox": {"provider": "docker", "image": "python:3.13-slim"}}],
)
async def test_options_that_cannot_work_are_refused(options):
    with pytest.raises(gymq.OptionsError, match=r"does not exist|docker|containers"):
        async with Harness(BirdSql, options):
            pass


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("```sql\nSELECT 1;\n```", "SELECT 1;"),
        ("```sql\na\n```\n```sql\nb\n```\n```\nc\n```", "b"),
        ("```SQL\na\n```", None),
        ("```sqlite\na\n```", "ite a"),
        ("```sql\n1\n```", None),
        ("```sql\n```\nSELECT 1\n```", "``` SELECT 1"),
        ("```sql\nSELECT 1", None),
        ("```sql\na -- b\nc\n```", "a"),
        ("```sql\n-- b\na\n```", ""),
        ("```sql\na /* -- b */ c /* d */\ne\n```", "a c e"),
        ("```sql\na /* b -- c */ d\n```", "a d"),
        ("```sql\na -- /* b */ c\n```", "a"),
        ("```sql\na /*/ b */ c\n```", "a c"),
        ("```sql\na /* b\n```", "a /* b"),
        ("```sql\na /* b -- c\n```", "a /* b"),
        ("```sql\nSELECT '--', 'a   b'\n```", "SELECT '"),
        ("```sql\nSELECT 'a   \t b'\n```", "SELECT 'a b'"),
        ("```sql**Query** a ** b```", "b"),
        ("```sql\n**Query** a\n```", "**Query** a"),
        ("```sql***a```", "***a"),
        ("```sql\nä\n```", None),
        ("", None),
    ],
)
def test_the_last_block_with_a_letter_is_the_query(text, query):
    assert published_query(text) == query


@pytest.mark.parametrize("part", ["```sql", "```sql a ```", "/*", "--", "/**/", "**", " \n", "```sql a /* -- */"])
def test_a_long_reply_is_read_in_one_pass(part):
    text = part * (1_000_000 // len(part))
    published_query(text)
    published_query(f"```sql a {text} ```")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("```sql\nSELECT 1 -- one\n, 2\n```", "SELECT 1 -- one\n, 2"),
        ("```sql\nSELECT 'a--b /* c */  d'\n```", "SELECT 'a--b /* c */  d'"),
        ("```SQL\nSELECT 1;\n```", "SELECT 1;"),
        ("```sqlite\nSELECT 1\n```", "SELECT 1"),
        ("``` sql\nSELECT 1\n```", "SELECT 1"),
        ("```sql SELECT 1```", "SELECT 1"),
        ("```sql\nSELECT 1\n``` and ```sql\nSELECT 2\n```", "SELECT 2"),
        ("```sql\nSELECT 1\n```\n```python\nprint(2)\n```", "SELECT 1"),
        ("```sql\nSELECT 1", "SELECT 1"),
        ("<think>```sql\nSELECT 1\n```</think>```sql\nSELECT 2\n```", "SELECT 2"),
        ("<think>```sql\nSELECT 1\n```", None),
        ("```sqlx\nSELECT 1\n```", None),
        ("SELECT 1", None),
    ],
)
def test_a_query_is_taken_as_it_is_written(text, query):
    assert query_as_written(text) == query


@pytest.mark.parametrize(
    "query",
    [
        "-- first\nSELECT kind FROM tree",
        "SELECT kind -- its name\nFROM tree",
        "/* all */ SELECT kind FROM tree",
        "SELECT/**/kind/* -- */FROM tree -- the end",
        "SELECT kind FROM tree WHERE '--' = '-' || '-'",
        "SELECT kind FROM tree WHERE '/* */' <> ''",
        "SELECT kind FROM tree WHERE \"kind\" <> 'a  b'",
        "SELECT kind FROM tree;\n-- done",
    ],
)
async def test_comments_and_texts_are_read_by_the_database(query):
    async with Harness(BirdSql, OPTIONS) as env:
        verdict = await env.verify(row("SELECT kind FROM tree"), reply(f"```sql\n{query}\n```"))
        assert verdict.reward == 1.0, verdict
