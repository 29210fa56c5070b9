"""Sessions, verdicts and hostile input of the whole worker."""

import asyncio
import json
from typing import Any

import pytest
from gymq.workers.resources.workplace_assistant.tables import load_tables
from gymq.workers.resources.workplace_assistant.worker import WorkplaceAssistant, same_outcome

import gymq
from gymq.testing import Harness, HarnessSession, function_call, prompt, reply

SEND = ("email_send_email", {"recipient": "a@b.example", "subject": "Hi", "body": "Text"})
DELETE = ("email_delete_email", {"email_id": "00000007"})


def row(*truth: tuple[str, dict[str, Any]], **members: Any) -> dict[str, Any]:
    return {
        **prompt("Please do what I ask."),
        "id": 1,
        "ground_truth": [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in truth],
        "category": "workplace_assistant_email",
        "environment_name": "workplace_assistant",
        **members,
    }


def calls(*actions: tuple[str, Any]) -> dict[str, Any]:
    return reply(*(function_call(name, arguments, f"call_{n}") for n, (name, arguments) in enumerate(actions)), "Done.")


async def output(session: HarnessSession, tool: str, /, **arguments: Any) -> Any:
    result = await session.call(tool, arguments)
    assert result.status == 200
    return json.loads(result.output)["output"]


async def reward(truth: list[tuple[str, Any]], done: list[tuple[str, Any]], folder: Any) -> float:
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        return (await env.verify(row(*truth), calls(*done))).reward


async def test_sessions_do_not_see_each_others_changes(folder):
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        one, other = await env.session(row()), await env.session(row())
        await asyncio.gather(*(output(one, "email_delete_email", email_id=f"{n:08}") for n in range(12)))
        assert await output(one, "email_search_emails") == "No emails found."
        assert (await output(other, "email_search_emails"))["pagination"]["total_emails"] == 8
        assert len(load_tables(folder).emails) == 8


async def test_seeding_again_resets_the_tables(folder):
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        session = await env.session(row())
        await output(session, "email_delete_email", email_id="00000007")
        await session.seed(row())
        assert await output(session, "email_delete_email", email_id="00000007") == "Email deleted successfully."


async def test_a_session_that_was_not_seeded_refuses_calls_but_can_be_verified(folder):
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        session = await env.session(None)
        assert (await session.call("email_search_emails", {})).status == 400
        assert (await session.verify(row(DELETE), calls(DELETE))).reward == 1.0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("email_burn_email", {}),
        ("email_delete_email", {"mail": "00000007"}),
        ("email_delete_email", {"tables": "x"}),
        ("email_search_emails", {"query": 5}),
        ("email_search_emails", {"page": "two"}),
        ("email_search_emails", {"date_min": "x" * 100_000}),
        ("calendar_search_events", {"query": "("}),
        ("calendar_search_events", {"time_min": "2023-12-01T09:30:00Z"}),
    ],
)
async def test_what_goes_wrong_in_a_tool_is_an_answer(folder, name, arguments):
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        session = await env.session(row())
        assert (await output(session, name, **arguments)).startswith(f"Error executing tool '{name}': ")
        assert (await output(session, "email_search_emails"))["pagination"]["total_emails"] == 8


@pytest.mark.parametrize("arguments", [None, [], "00000007", 7])
async def test_arguments_that_are_no_object_are_refused(folder, arguments):
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        assert (await (await env.session(row())).call("email_delete_email", arguments)).status == 422


async def test_null_arguments_are_left_out_in_a_session(folder):
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        found = await output(await env.session(row()), "email_search_emails", query="crane", page=None, unknown=None)
    assert found["pagination"]["total_emails"] == 2


async def test_a_pattern_that_does_not_end_is_stopped(folder, monkeypatch):
    monkeypatch.setattr(WorkplaceAssistant, "search_timeout_s", 0.3)
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        session = await env.session(row())
        name = "x" * 60
        await output(
            session,
            "calendar_create_event",
            event_name=name,
            participant_email="a@b.example",
            event_start="2023-12-06",
            duration="30",
        )
        answer = await output(session, "calendar_search_events", query="(x|x)*y")
        assert "longer than 0.3 seconds" in answer
        assert (await output(session, "calendar_search_events", query=name))["events"][0]["event_name"] == name


async def test_other_sessions_are_answered_while_a_pattern_does_not_end(folder, monkeypatch):
    monkeypatch.setattr(WorkplaceAssistant, "search_timeout_s", 60.0)
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        stuck = asyncio.ensure_future(
            (await env.session(row())).call(
                "customer_relationship_manager_search_customers", {"customer_name": "(.|.)*#"}
            )
        )
        quick = await env.session(row())
        assert await output(quick, "company_directory_find_email_address", name="li") == ["li.wei@harbour.example"]
        assert not stuck.done()
        stuck.cancel()


async def test_the_order_of_independent_calls_does_not_matter_where_the_tables_end_the_same(folder):
    assert await reward([SEND, DELETE], [DELETE, SEND], folder) == 1.0


async def test_calls_that_fail_are_skipped(folder):
    nonsense = [
        ("email_burn_email", {}),
        ("email_send_email", "{oops"),
        ("email_send_email", "[]"),
        ("email_send_email", {"to": "a@b.example"}),
        ("email_delete_email", {"email_id": None}),
    ]
    assert await reward([DELETE], [*nonsense, DELETE], folder) == 1.0


@pytest.mark.parametrize(
    ("changed", "equal"),
    [
        ({"recipient": "A@B.example", "subject": "HI"}, 1.0),
        ({"body": "Text!"}, 0.0),
        ({"subject": 5}, 0.0),
    ],
)
async def test_texts_are_compared_without_case(folder, changed, equal):
    assert await reward([SEND], [("email_send_email", SEND[1] | changed)], folder) == equal


@pytest.mark.parametrize(("given", "equal"), [("30", 1.0), (30, 0.0), (31, 0.0)])
async def test_a_number_is_not_its_text(folder, given, equal):
    event = {"event_name": "Talk", "participant_email": "a@b.example", "event_start": "2023-12-06"}
    truth = [("calendar_create_event", event | {"duration": "30"})]
    assert await reward(truth, [("calendar_create_event", event | {"duration": given})], folder) == equal


async def test_different_numbers_are_different(folder):
    change = {"customer_id": "00000001", "field": "notes"}
    truth = [("customer_relationship_manager_update_customer", change | {"new_value": 1})]
    done = [("customer_relationship_manager_update_customer", change | {"new_value": 2})]
    assert await reward(truth, done, folder) == 0.0


async def test_a_text_as_ground_truth_stands_for_no_calls(folder):
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        assert (await env.verify(row(ground_truth="nothing"), calls())).reward == 1.0
        assert (await env.verify(row(ground_truth="nothing"), calls(DELETE))).reward == 0.0


@pytest.mark.parametrize(
    "member", [{"ground_truth": None}, {"ground_truth": [{"name": "x"}]}, {"id": "one"}, {"category": 5}]
)
async def test_a_row_that_does_not_fit_is_refused(folder, member):
    async with Harness(WorkplaceAssistant, {"data_dir": str(folder)}) as env:
        with pytest.raises(gymq.InvalidTask):
            await env.verify(row(**member), calls())


def test_thousands_of_calls_are_compared(folder):
    sent = [("email_send_email", json.dumps(SEND[1] | {"body": str(n)})) for n in range(2000)]
    assert same_outcome(folder, sent, sent)
    assert not same_outcome(folder, sent, sent[:-1])


async def test_a_folder_without_tables_is_refused_when_the_worker_starts(tmp_path):
    with pytest.raises(gymq.OptionsError, match=r"emails\.csv cannot be read"):
        async with Harness(WorkplaceAssistant, {"data_dir": str(tmp_path)}):
            pass


async def test_a_table_without_a_column_is_refused_when_the_worker_starts(tmp_path):
    (tmp_path / "emails.csv").write_text("email_id,body\n1,x\n")
    with pytest.raises(gymq.OptionsError, match=r"emails\.csv lacks the columns inbox/outbox"):
        async with Harness(WorkplaceAssistant, {"data_dir": str(tmp_path)}):
            pass


async def test_the_default_tables_are_complete():
    async with Harness(WorkplaceAssistant) as env:
        office = load_tables(env.author.options.data_dir)
    sizes = (len(office.emails), len(office.events), len(office.visits), len(office.tasks), len(office.customers))
    assert sizes == (42, 32, 100, 40, 30)
