"""The tools, on a small office."""

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.resources.workplace_assistant import analytics, customers, emails, events, tasks
from gymq.workers.resources.workplace_assistant.records import matches, page_of
from gymq.workers.resources.workplace_assistant.worker import CHANGING, READING, SEARCHING

NIAMH = "niamh.burke@harbour.example"


async def matcher(pattern: str, texts: list[str]) -> list[bool]:
    return matches(pattern, texts)


def ids(page: dict[str, Any], kind: str, column: str) -> list[str]:
    return [row[column] for row in page[kind]]


def test_the_published_tools_are_those_that_exist():
    published = json.loads((Path(emails.__file__).parent / "data" / "tools.json").read_text())
    functions = READING | SEARCHING | CHANGING
    assert {tool["name"] for tool in published} == functions.keys()
    assert len(published) == 27
    for tool in published:
        parameters = inspect.signature(functions[tool["name"]]).parameters.values()
        names = {each.name for each in parameters if each.kind is not each.POSITIONAL_ONLY}
        assert tool["parameters"]["properties"].keys() == names, tool["name"]


def test_no_reading_tool_changes_anything(tables):
    before = dataclasses.replace(tables)
    for name, function in READING.items():
        function(tables, **({"name": "a"} if name.startswith("company") else {}))
    assert tables == before


class TestDirectory:
    def test_addresses_are_found_by_a_part_in_any_case(self, tables):
        assert emails.find_email_address(tables, name="NIAMH") == [NIAMH]
        assert emails.find_email_address(tables, name="nobody") == []
        assert emails.find_email_address(tables) == "Name not provided."


class TestEmails:
    def test_all_words_have_to_occur_somewhere_newest_first(self, tables):
        page: Any = emails.search_emails(tables, query="Berth NIAMH")
        assert ids(page, "emails", "email_id") == ["00000009", "00000007"]
        assert page["pagination"] == {"total_emails": 2, "page": 1, "page_size": 5, "total_pages": 1}

    def test_a_query_of_many_words_is_refused(self, tables):
        with pytest.raises(ValueError, match="at most 1,000 characters"):
            emails.search_emails(tables, query="a " * 501)

    def test_dates_are_inclusive_by_day(self, tables):
        page: Any = emails.search_emails(tables, date_min="2023-10-05 20:00", date_max="11 Oct 2023")
        assert ids(page, "emails", "email_id") == ["00000011", "00000003"]

    def test_a_page_outside_is_moved_to_the_nearest(self, tables):
        last: Any = emails.search_emails(tables, page=99)
        first: Any = emails.search_emails(tables, page=-1)
        assert last["pagination"]["page"] == 2
        assert first["pagination"]["page"] == 1

    def test_nothing_found(self, tables):
        assert emails.search_emails(tables, query="submarine") == "No emails found."

    def test_one_field_is_read(self, tables):
        read = emails.get_email_information_by_id
        assert read(tables, email_id="00000003", field="subject") == {"subject": "Crane inspection"}
        assert read(tables, field="subject") == "Email ID not provided."
        assert read(tables, email_id="00000003") == "Field not provided."
        assert read(tables, email_id="3", field="subject") == "Email not found."
        assert read(tables, email_id="00000003", field="colour") == "Field not found."

    def test_a_new_mail_has_the_largest_id_as_text_plus_one(self, tables):
        assert emails.send_email(tables, "A.B@C.example", "Hi", "Text") == "Email sent successfully."
        assert tables.emails[-1] == {
            "email_id": "12",
            "inbox/outbox": "outbox",
            "sender/recipient": "a.b@c.example",
            "subject": "Hi",
            "sent_datetime": "2023-11-30 23:59:00",
            "body": "Text",
        }
        emails.send_email(tables, "a@b.example", "Hi", "Text")
        assert tables.emails[-1]["email_id"] == "13"

    @pytest.mark.parametrize(
        ("arguments", "answer"),
        [
            ({"recipient": "a@b.c", "subject": "x"}, "Recipient, subject, or body not provided."),
            ({"recipient": "a at b.c", "subject": "x", "body": "y"}, "Invalid recipient email address."),
            ({"recipient": "a@b", "subject": "x", "body": "y"}, "Invalid recipient email address."),
        ],
    )
    def test_a_mail_that_cannot_be_sent_changes_nothing(self, tables, arguments, answer):
        before = tables.emails
        assert emails.send_email(tables, **arguments) == answer
        assert tables.emails is before

    def test_replies_and_forwards_carry_a_prefix(self, tables):
        assert emails.reply_email(tables, "00000007", "Fine") == "Email replied successfully."
        assert emails.forward_email(tables, "00000007", NIAMH) == "Email forwarded successfully."
        reply, forward = tables.emails[-2:]
        assert (reply["sender/recipient"], reply["subject"], reply["body"]) == (
            NIAMH,
            "RE: Berth plan for October",
            "Fine",
        )
        assert (forward["subject"], forward["body"]) == ("FW: Berth plan for October", tables.emails[0]["body"])

    def test_a_mail_without_a_body_can_be_forwarded(self, tables):
        tables.emails = ({**tables.emails[0], "body": None}, *tables.emails[1:])
        assert emails.forward_email(tables, "00000007", NIAMH) == "Email forwarded successfully."
        assert tables.emails[-1]["body"] is None

    @pytest.mark.parametrize("email_id", ["00000007", "nowhere"])
    def test_an_address_is_checked_before_the_mail_to_forward_is_looked_for(self, tables, email_id):
        before = tables.emails
        assert emails.forward_email(tables, email_id, "niamh") == "Invalid recipient email address."
        assert tables.emails is before

    def test_deleting_twice_finds_it_once(self, tables):
        assert emails.delete_email(tables, "00000007") == "Email deleted successfully."
        assert emails.delete_email(tables, "00000007") == "Email not found."


class TestEvents:
    async def test_the_query_is_a_pattern_latest_first(self, tables):
        page: Any = await events.search_events(tables, matcher, query="^(pier|budget) r")
        assert ids(page, "events", "event_id") == ["00000007", "00000006", "00000004"]

    async def test_bounds_are_on_the_start(self, tables):
        page: Any = await events.search_events(
            tables, matcher, time_min="2023-11-28 15:00:00", time_max="2023-12-01 09:30:00"
        )
        assert ids(page, "events", "event_id") == ["00000007", "00000002"]

    async def test_a_bound_that_is_no_time_is_refused(self, tables):
        with pytest.raises(ValueError, match="soon"):
            await events.search_events(tables, matcher, time_min="soon")

    async def test_nothing_found(self, tables):
        assert await events.search_events(tables, matcher, query="party") == "No events found."

    def test_a_new_event_gets_the_next_id(self, tables):
        assert events.create_event(tables, "Talk", "X@Y.example", "2023-12-06 10:00:00", "30") == "00000008"
        assert tables.events[-1]["participant_email"] == "x@y.example"

    @pytest.mark.parametrize(
        "change",
        [
            {"event_name": ""},
            {"participant_email": None},
            {"event_start": "soon"},
            {"event_start": 5},
            {"duration": "-30"},
            {"duration": "0"},
            {"duration": "half an hour"},
            {"duration": [30]},
        ],
    )
    def test_an_event_that_does_not_fit_changes_nothing(self, tables, change):
        before = tables.events
        event = {"event_name": "Talk", "participant_email": NIAMH, "event_start": "2023-12-06 10:00", "duration": "30"}
        answer = events.create_event(tables, **event | change)
        assert not answer.isdigit()
        assert tables.events is before

    @pytest.mark.parametrize("event_id", ["4", 4, "0000000x", "000000004"])
    def test_ids_have_eight_digits(self, tables, event_id):
        refusal = "Invalid event ID format. Expected 8-digit ID."
        assert events.get_event_information_by_id(tables, event_id, "duration") == refusal
        assert events.delete_event(tables, event_id) == refusal
        assert events.update_event(tables, event_id, "duration", "30") == refusal

    @pytest.mark.parametrize(
        ("field", "value"),
        [("event_id", "00000099"), ("colour", "red"), ("duration", "0"), ("event_start", "soon"), ("event_name", "")],
    )
    def test_an_update_that_does_not_fit_changes_nothing(self, tables, field, value):
        before = tables.events
        events.update_event(tables, "00000004", field, value)
        assert tables.events is before

    def test_an_update_changes_one_field(self, tables):
        events.update_event(tables, "00000004", "participant_email", "A@B.example")
        assert tables.events[0]["participant_email"] == "a@b.example"


class TestAnalytics:
    def test_figures_for_each_day(self, tables):
        days = {"time_min": "2023-11-07", "time_max": "2023-11-20"}
        assert analytics.total_visits_count(tables, **days) == {"2023-11-07": 3, "2023-11-20": 1}
        assert analytics.engaged_users_count(tables, **days) == {"2023-11-07": 1, "2023-11-20": 0}
        assert analytics.traffic_source_count(tables, **days, traffic_source="direct") == {
            "2023-11-07": 1,
            "2023-11-20": 0,
        }
        assert analytics.get_average_session_duration(tables, **days) == {"2023-11-07": 16.0, "2023-11-20": 20.0}

    def test_visits_of_a_visitor(self, tables):
        visits: Any = analytics.get_visitor_information_by_id(tables, "0041")
        (visit,) = visits
        assert (visit["date_of_visit"], visit["page_views"], visit["user_engaged"]) == ("2023-10-01", "1", True)
        assert analytics.get_visitor_information_by_id(tables, "41") == "Visitor not found."

    def test_a_plot_is_named_by_what_it_shows(self, tables):
        path = analytics.create_plot(tables, "2023-10-01", "2023-10-31", "visits_direct", "bar")
        assert path == "plots/2023-10-01_2023-10-31_visits_direct_bar.png"
        assert [row["file_path"] for row in tables.plots] == [path]

    @pytest.mark.parametrize("wrong", [{"value_to_plot": "clicks"}, {"plot_type": "pie"}, {"time_min": None}])
    def test_a_plot_that_does_not_fit_is_not_made(self, tables, wrong):
        plot = {"time_min": "a", "time_max": "b", "value_to_plot": "total_visits", "plot_type": "bar"}
        analytics.create_plot(tables, **plot | wrong)
        assert tables.plots == ()


class TestTasks:
    async def test_all_conditions_have_to_be_met(self, tables):
        found: Any = await tasks.search_tasks(tables, matcher, task_name="FIX", board="back end", list_name="completed")
        assert [task["task_id"] for task in found] == ["00000002"]

    async def test_the_assignee_is_compared_as_a_whole_in_any_case(self, tables):
        assert await tasks.search_tasks(tables, matcher, assigned_to_email="li.wei") == []
        assert len(await tasks.search_tasks(tables, matcher, assigned_to_email="LI.wei@harbour.example")) == 2

    async def test_a_condition_is_needed(self, tables):
        assert await tasks.search_tasks(tables, matcher) == "No search parameters provided."

    @pytest.mark.parametrize(
        "change",
        [
            {"assigned_to_email": NIAMH},
            {"list_name": "backlog"},
            {"board": "Backend"},
            {"due_date": None},
        ],
    )
    def test_a_task_that_does_not_fit_is_not_created(self, tables, change):
        before = tables.tasks
        task = {
            "task_name": "Write tide tests",
            "assigned_to_email": "LI.WEI@harbour.example",
            "list_name": "Backlog",
            "due_date": "2023-12-08",
            "board": "Back end",
        }
        tasks.create_task(tables, **task | change)
        assert tables.tasks is before
        assert tasks.create_task(tables, **task) == "00000007"
        assert tables.tasks[-1]["assigned_to_email"] == "li.wei@harbour.example"

    @pytest.mark.parametrize(
        ("field", "value"),
        [("list_name", "Done"), ("board", "design"), ("assigned_to_email", NIAMH), ("colour", "red")],
    )
    def test_an_update_that_does_not_fit_changes_nothing(self, tables, field, value):
        before = tables.tasks
        tasks.update_task(tables, "00000001", field, value)
        assert tables.tasks is before

    def test_updating_and_deleting(self, tables):
        assert tasks.update_task(tables, "00000001", "list_name", "Completed") == "Task updated successfully."
        assert tables.tasks[1]["list_name"] == "Completed"
        assert tasks.delete_task(tables, "00000001") == "Task deleted successfully."
        assert tasks.delete_task(tables, "00000001") == "Task not found."


class TestCustomers:
    async def test_patterns_and_ranges(self, tables):
        found: Any = await customers.search_customers(
            tables, matcher, customer_name="greta", last_contact_date_min="2023-11-01"
        )
        assert ids(found, "customers", "customer_name") == ["Greta Lund"]

    async def test_nothing_found(self, tables):
        assert await customers.search_customers(tables, matcher, customer_name="nobody") == "No customers found."

    async def test_dates_are_compared_as_text(self, tables):
        found: Any = await customers.search_customers(tables, matcher, last_contact_date_max="2023-11-20")
        assert "Marco Vidal" not in ids(found, "customers", "customer_name")

    async def test_a_condition_is_needed(self, tables):
        assert str(await customers.search_customers(tables, matcher)).startswith("No search parameters provided.")

    async def test_a_customer_without_an_address_is_not_found_by_one(self, tables):
        customers.add_customer(tables, "New One", NIAMH, "Lead")
        found: Any = await customers.search_customers(tables, matcher, customer_email=".*", page_size=100)
        assert len(found["customers"]) == 5

    def test_a_new_customer(self, tables):
        assert (
            customers.add_customer(tables, "New One", NIAMH.upper(), "Hot", customer_email="N@O.example") == "00000006"
        )
        added = tables.customers[-1]
        assert (added["assigned_to_email"], added["customer_email"]) == (NIAMH, "n@o.example")
        assert (added["status"], added["notes"], added["customer_phone"]) == ("Hot", "", None)

    @pytest.mark.parametrize(
        ("field", "value"), [("status", "won"), ("product_interest", "Boats"), ("colour", "red"), ("notes", "")]
    )
    def test_an_update_that_does_not_fit_changes_nothing(self, tables, field, value):
        before = tables.customers
        customers.update_customer(tables, "00000001", field, value)
        assert tables.customers is before

    def test_updating_and_deleting(self, tables):
        assert customers.update_customer(tables, "00000001", "status", "Won") == "Customer updated successfully."
        assert customers.delete_customer(tables, "00000001") == "Customer deleted successfully."
        assert customers.delete_customer(tables, "00000001") == "Customer not found."


def test_a_page_has_at_least_one_entry():
    with pytest.raises(ValueError, match="page_size"):
        page_of("emails", [], 1, 0)
