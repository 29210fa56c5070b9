"""Tools of the project board."""

from __future__ import annotations

from typing import Any

from gymq.workers.resources.workplace_assistant.records import (
    Matcher,
    added,
    choices,
    deleted,
    field_of,
    find,
    matching_rows,
    updated,
)
from gymq.workers.resources.workplace_assistant.tables import TASK_COLUMNS, Row, Tables, Tool

LISTS = ("Backlog", "In Progress", "In Review", "Completed")
BOARDS = ("Back end", "Front end", "Design")

NOT_FOUND = "Task not found."


def get_task_information_by_id(tables: Tables, /, task_id: Any = None, field: Any = None) -> Row | str:
    return field_of(tables.tasks, "task_id", task_id, field, "Task")


async def search_tasks(
    tables: Tables,
    matcher: Matcher,
    /,
    task_name: str | None = None,
    assigned_to_email: str | None = None,
    list_name: str | None = None,
    due_date: str | None = None,
    board: str | None = None,
) -> list[Row] | str:
    patterns = {"task_name": task_name, "list_name": list_name, "due_date": due_date, "board": board}
    if not assigned_to_email and not any(patterns.values()):
        return "No search parameters provided."
    assignee = (assigned_to_email or "").lower()
    found = [task for task in tables.tasks if not assignee or (task["assigned_to_email"] or "").lower() == assignee]
    for column, pattern in patterns.items():
        if pattern:
            found = await matching_rows(found, (column,), pattern, matcher)
    return found


def create_task(
    tables: Tables,
    /,
    task_name: Any = None,
    assigned_to_email: Any = None,
    list_name: Any = None,
    due_date: Any = None,
    board: Any = None,
) -> str:
    if not all((task_name, assigned_to_email, list_name, due_date, board)):
        return "Missing task details."
    values = {"assigned_to_email": assigned_to_email.lower(), "list_name": list_name, "board": board}
    for field, value in values.items():
        if refusal := _refusal(tables, field, value):
            return refusal
    task = {
        "task_name": task_name,
        "assigned_to_email": values["assigned_to_email"],
        "list_name": list_name,
        "due_date": due_date,
        "board": board,
    }
    tables.tasks, task_id = added(tables.tasks, "task_id", task)
    return task_id


def delete_task(tables: Tables, /, task_id: Any = None) -> str:
    tables.tasks, answer = deleted(tables.tasks, "task_id", task_id, "Task")
    return answer


def update_task(tables: Tables, /, task_id: Any = None, field: Any = None, new_value: Any = None) -> str:
    if not task_id or not field or not new_value:
        return "Task ID, field, or new value not provided."
    if find(tables.tasks, "task_id", task_id) is None:
        return NOT_FOUND
    if field not in TASK_COLUMNS:
        return f"Field not valid. Please choose from: {choices(TASK_COLUMNS)}."
    if field == "assigned_to_email":
        new_value = new_value.lower()
    if refusal := _refusal(tables, field, new_value):
        return refusal
    tables.tasks = updated(tables.tasks, "task_id", task_id, {field: new_value})
    return "Task updated successfully."


def _refusal(tables: Tables, field: str, value: Any) -> str | None:
    if field == "list_name" and value not in LISTS:
        return f"List not valid. Please choose from: {choices(LISTS)}."
    if field == "board" and value not in BOARDS:
        return f"Board not valid. Please choose from: {choices(BOARDS)}."
    if field == "assigned_to_email" and value not in {(task[field] or "").lower() for task in tables.tasks}:
        return "Assignee email not valid. Please choose somebody who has a task already."
    return None


READING: dict[str, Tool] = {"project_management_get_task_information_by_id": get_task_information_by_id}
SEARCHING: dict[str, Tool] = {"project_management_search_tasks": search_tasks}
CHANGING: dict[str, Tool] = {
    "project_management_create_task": create_task,
    "project_management_delete_task": delete_task,
    "project_management_update_task": update_task,
}
