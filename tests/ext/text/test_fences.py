import pytest

from gymq.ext.text import code_blocks


@pytest.mark.parametrize(
    ("reply", "blocks"),
    [
        ("```sql\na\n```", ["a"]),
        ("```SQL\na\n```", ["a"]),
        ("``` sql\na\n```", ["a"]),
        ("```sql  \na\n```", ["a"]),
        ("````sql\na\n````", ["a"]),
        ("  ```sql\n  a\n  ```", ["  a"]),
        ("- ```sql\n  a\n  ```", ["  a"]),
        ("```sql a```", ["a"]),
        ("```sql\na```", ["a"]),
        ("```sql\na\n\n```", ["a\n"]),
        ("```sql\na", ["a"]),
        ("```sql\n```", [""]),
        ("```sql\na\n``` or ```sql\nb\n```", ["a", "b"]),
        ("```sql\na\n```\n```\nc\n```\n```sql\nb\n```", ["a", "b"]),
        ("```sql\na\n```sql\nb\n```", ["a", "b"]),
        ("Write ``` around it:\n```sql\na\n```", ["a"]),
        ("```sql\n'```'\n```", ["'```'"]),
        ("```sql\n'```' -- ```\n```\n```sql\nb\n```", ["'```' -- ```", "b"]),
        ("```sql\na```\n```sql\nb```", ["a", "b"]),
        ("```sql a``` and ```sql b```", ["a", "b"]),
        ("```sqlx\na\n```", []),
        ("```\nsql\n```", []),
        ("``sql\na\n``", []),
        ("", []),
    ],
)
def test_blocks_with_a_tag_are_found(reply, blocks):
    assert [block.lines for block in code_blocks(reply, "sql")] == blocks


def test_without_tags_all_blocks_are_found_with_their_own():
    assert [block.tag for block in code_blocks("```Python\na\n```\n```\nb\n```\n```c++\nd")] == ["Python", "", "c++"]


def test_a_block_that_the_reply_ends_in_is_not_closed():
    assert [block.is_closed for block in code_blocks("```\na\n```\n```\nb")] == [True, False]


@pytest.mark.parametrize("part", ["```", "```sql", "```sql\n", "\n```", "```sql\n a``` ", "` ``` `\n", "``` "])
def test_a_long_reply_is_read_in_one_pass(part):
    text = part * (1_000_000 // len(part))
    assert sum(len(block.text) for block in code_blocks(text)) <= len(text)
