"""Office tasks for the demo, made from the default tables of workplace_assistant."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any, NamedTuple

from gymq.workers.resources.workplace_assistant.tables import Table, load_tables
from gymq.workers.resources.workplace_assistant.worker import WorkplaceAssistant
from rows import Action, Row, call, make_row, say

ROWS_OF_EACH_KIND = 4

DATA = WorkplaceAssistant.Options().data_dir
TABLES = load_tables(DATA)
TOOLS = json.loads((DATA.parent / "tools.json").read_text(encoding="utf-8"))

SYSTEM = (
    "You work in the office of a harbour and have tools for mail, calendar, web analytics, tasks and customers. "
    "Today is Thursday, 2023-11-30, and it is 23:59. Do what is asked, then say so."
)
TODAY = date(2023, 11, 30)


class Job(NamedTuple):
    """What is asked, the call that finds what it is about (if one is needed), the right call and a wrong one."""

    category: str
    question: str
    search: Action | None
    right: Action
    wrong: Action


def rows(seed: random.Random) -> Iterator[Row]:
    """A few rows of each kind of job."""
    number = 0
    for kind in KINDS:
        for _ in range(ROWS_OF_EACH_KIND):
            number += 1
            yield _row(number, kind(seed))


def reply_to_mail(seed: random.Random) -> Job:
    mail = seed.choice(_with_unique_subject(TABLES.emails))
    text = seed.choice(["Thank you, I take care of it.", "Let us talk about it tomorrow.", "Agreed."])
    return Job(
        "email",
        f"Answer the mail {mail['subject']!r} with: {text}",
        call("email_search_emails", query=mail["subject"]),
        call("email_reply_email", email_id=mail["email_id"], body=text),
        call("email_send_email", recipient=mail["sender/recipient"], subject=mail["subject"], body=text),
    )


def delete_mail(seed: random.Random) -> Job:
    mail, other = seed.sample(_with_unique_subject(TABLES.emails), 2)
    return Job(
        "email",
        f"Delete the mail {mail['subject']!r}.",
        call("email_search_emails", query=mail["subject"]),
        call("email_delete_email", email_id=mail["email_id"]),
        call("email_delete_email", email_id=other["email_id"]),
    )


def forward_mail(seed: random.Random) -> Job:
    mail = seed.choice(_with_unique_subject(TABLES.emails))
    person, other = seed.sample(TABLES.addresses, 2)
    return Job(
        "email",
        f"Forward the mail {mail['subject']!r} to {_first_name(person)}.",
        call("email_search_emails", query=mail["subject"]),
        call("email_forward_email", email_id=mail["email_id"], recipient=person),
        call("email_forward_email", email_id=mail["email_id"], recipient=other),
    )


def create_event(seed: random.Random) -> Job:
    person = seed.choice(TABLES.addresses)
    name = seed.choice(["Crane talk", "Ice warning drill", "Invoice check", "Pier walk"])
    day = TODAY + timedelta(days=seed.randint(1, 9))
    hour, minutes = seed.randint(9, 16), seed.choice(["30", "45", "60"])
    event = {"event_name": name, "participant_email": person, "event_start": f"{day} {hour:02}:00:00"}
    return Job(
        "calendar",
        f"Put an event {name!r} with {_first_name(person)} into the calendar: {day} at {hour}:00, {minutes} minutes.",
        call("company_directory_find_email_address", name=_first_name(person)),
        call("calendar_create_event", **event, duration=minutes),
        call("calendar_create_event", **event, duration="15"),
    )


def move_event(seed: random.Random) -> Job:
    event = seed.choice(_coming_events())
    start = f"{TODAY + timedelta(days=seed.randint(2, 12))} {seed.randint(9, 16):02}:30:00"
    change = {"event_id": event["event_id"], "field": "event_start"}
    return Job(
        "calendar",
        f"Move the event {event['event_name']!r} of {event['event_start']} to {start}.",
        call("calendar_search_events", time_min=event["event_start"], time_max=event["event_start"]),
        call("calendar_update_event", **change, new_value=start),
        call("calendar_update_event", **change, new_value=f"{TODAY} 09:30:00"),
    )


def cancel_event(seed: random.Random) -> Job:
    event, other = seed.sample(_coming_events(), 2)
    return Job(
        "calendar",
        f"Cancel the event {event['event_name']!r} of {event['event_start']}.",
        call("calendar_search_events", time_min=event["event_start"], time_max=event["event_start"]),
        call("calendar_delete_event", event_id=event["event_id"]),
        call("calendar_delete_event", event_id=other["event_id"]),
    )


def plot(seed: random.Random) -> Job:
    first = date(2023, 9, 1) + timedelta(days=seed.randint(0, 60))
    last = first + timedelta(days=seed.randint(5, 25))
    value, words = seed.choice([("total_visits", "visits"), ("user_engaged", "engaged users")])
    kind, other_kind = seed.sample(["bar", "line", "scatter", "histogram"], 2)
    days = {"time_min": str(first), "time_max": str(last), "value_to_plot": value}
    return Job(
        "analytics",
        f"Make a {kind} plot of the {words} of our web site from {first} to {last}.",
        None,
        call("analytics_create_plot", **days, plot_type=kind),
        call("analytics_create_plot", **days, plot_type=other_kind),
    )


def move_task(seed: random.Random) -> Job:
    task = seed.choice(TABLES.tasks)
    lists = [name for name in ("Backlog", "In Progress", "In Review", "Completed") if name != task["list_name"]]
    wanted, other = seed.sample(lists, 2)
    change = {"task_id": task["task_id"], "field": "list_name"}
    return Job(
        "project_management",
        f"Put the task {task['task_name']!r} into the list {wanted!r}.",
        call("project_management_search_tasks", task_name=task["task_name"]),
        call("project_management_update_task", **change, new_value=wanted),
        call("project_management_update_task", **change, new_value=other),
    )


def create_task(seed: random.Random) -> Job:
    owner = seed.choice(TABLES.tasks)
    name = seed.choice(["Check the wind sensor", "Count the life vests", "Clean the gate camera", "Sort old plans"])
    due = TODAY + timedelta(days=seed.randint(3, 20))
    task = {
        "task_name": name,
        "assigned_to_email": owner["assigned_to_email"],
        "due_date": str(due),
        "board": owner["board"],
    }
    return Job(
        "project_management",
        f"Create a task {name!r} for {_first_name(owner['assigned_to_email'])} on the board {owner['board']!r}, "
        f"in the list 'Backlog', due on {due}.",
        call("company_directory_find_email_address", name=_first_name(owner["assigned_to_email"])),
        call("project_management_create_task", **task, list_name="Backlog"),
        call("project_management_create_task", **task, list_name="In Progress"),
    )


def update_customer(seed: random.Random) -> Job:
    customer = seed.choice(TABLES.customers)
    statuses = [name for name in ("Qualified", "Won", "Lost", "Lead", "Proposal") if name != customer["status"]]
    wanted, other = seed.sample(statuses, 2)
    change = {"customer_id": customer["customer_id"], "field": "status"}
    return Job(
        "customer_relationship_manager",
        f"Set the status of the customer {customer['customer_name']} to {wanted!r}.",
        call("customer_relationship_manager_search_customers", customer_name=customer["customer_name"]),
        call("customer_relationship_manager_update_customer", **change, new_value=wanted),
        call("customer_relationship_manager_update_customer", **change, new_value=other),
    )


KINDS: list[Callable[[random.Random], Job]] = [
    reply_to_mail,
    delete_mail,
    forward_mail,
    create_event,
    move_event,
    cancel_event,
    plot,
    move_task,
    create_task,
    update_customer,
]


def _row(number: int, job: Job) -> Row:
    before = [] if job.search is None else [[job.search]]
    expected = job.right["call"]
    return make_row(
        "workplace_assistant_simple_agent",
        job.question,
        system=SYSTEM,
        tools=_tools_of(job.category),
        solution=[*before, [job.right], [say("Done.")]],
        mistake=[*before, [job.wrong], [say("Done.")]],
        id=number,
        ground_truth=[{"name": expected["name"], "arguments": json.dumps(expected["arguments"])}],
        category=f"workplace_assistant_{job.category}",
        environment_name="workplace_assistant",
    )


def _tools_of(category: str) -> list[dict[str, Any]]:
    """The address book and the tools of one table; all 27 would make the rows very long."""
    return [tool for tool in TOOLS if tool["name"].startswith((f"{category}_", "company_directory_"))]


def _with_unique_subject(mails: Table) -> list[dict[str, Any]]:
    """Mails that a search for their subject finds alone."""
    subjects = [mail["subject"] for mail in mails]
    return [mail for mail in mails if sum(mail["subject"] in subject for subject in subjects) == 1]


def _coming_events() -> list[dict[str, Any]]:
    return [event for event in TABLES.events if event["event_start"] > f"{TODAY} 23:59:00"]


def _first_name(address: str) -> str:
    return address.partition(".")[0].title()
