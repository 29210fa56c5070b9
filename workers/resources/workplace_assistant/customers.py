"""Tools of the customer relationship manager."""

from __future__ import annotations

from typing import Any

from gymq.workers.resources.workplace_assistant.records import (
    PAGE_SIZE,
    Matcher,
    added,
    choices,
    deleted,
    find,
    matching_rows,
    page_of,
    updated,
)
from gymq.workers.resources.workplace_assistant.tables import CUSTOMER_COLUMNS, Row, Tables, Tool

STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")

NOT_FOUND = "Customer not found."


async def search_customers(
    tables: Tables,
    matcher: Matcher,
    /,
    customer_name: str | None = None,
    customer_email: str | None = None,
    product_interest: str | None = None,
    status: str | None = None,
    assigned_to_email: str | None = None,
    last_contact_date_min: str | None = None,
    last_contact_date_max: str | None = None,
    follow_up_by_min: str | None = None,
    follow_up_by_max: str | None = None,
    page: int = 1,
    page_size: int = PAGE_SIZE,
) -> Row | str:
    patterns = {
        "customer_name": customer_name,
        "customer_email": customer_email,
        "product_interest": product_interest,
        "status": status,
        "assigned_to_email": assigned_to_email,
    }
    ranges = {
        "last_contact_date": (last_contact_date_min, last_contact_date_max),
        "follow_up_by": (follow_up_by_min, follow_up_by_max),
    }
    if not any(patterns.values()) and not any(bound for bounds in ranges.values() for bound in bounds):
        return "No search parameters provided. Please provide at least one parameter."
    found = list(tables.customers)
    for column, pattern in patterns.items():
        if pattern:
            found = await matching_rows(found, (column,), pattern, matcher)
    for column, (first, last) in ranges.items():
        found = [customer for customer in found if _is_within(customer[column], first, last)]
    return page_of("customers", found, page, page_size) if found else "No customers found."


def update_customer(tables: Tables, /, customer_id: Any = None, field: Any = None, new_value: Any = None) -> str:
    if not customer_id or not field or not new_value:
        return "Customer ID, field, or new value not provided."
    if field == "status" and new_value not in STATUSES:
        return f"Status not valid. Please choose from: {choices(STATUSES)}."
    if field == "product_interest" and new_value not in PRODUCTS:
        return f"Product interest not valid. Please choose from: {choices(PRODUCTS)}."
    if field in ("customer_email", "assigned_to_email"):
        new_value = new_value.lower()
    if find(tables.customers, "customer_id", customer_id) is None:
        return NOT_FOUND
    if field not in CUSTOMER_COLUMNS:
        return f"Field not valid. Please choose from: {choices(CUSTOMER_COLUMNS)}."
    tables.customers = updated(tables.customers, "customer_id", customer_id, {field: new_value})
    return "Customer updated successfully."


def add_customer(
    tables: Tables,
    /,
    customer_name: Any = None,
    assigned_to_email: Any = None,
    status: Any = None,
    customer_email: Any = None,
    customer_phone: Any = None,
    last_contact_date: Any = None,
    product_interest: Any = None,
    follow_up_by: Any = None,
    notes: Any = "",
) -> str:
    if not all((customer_name, assigned_to_email, status)):
        return "Please provide all required fields: customer_name, assigned_to_email, status."
    customer = {
        "assigned_to_email": assigned_to_email.lower(),
        "customer_name": customer_name,
        "customer_email": customer_email.lower() if customer_email else customer_email,
        "customer_phone": customer_phone,
        "last_contact_date": last_contact_date,
        "product_interest": product_interest,
        "status": status,
        "follow_up_by": follow_up_by,
        "notes": notes,
    }
    tables.customers, customer_id = added(tables.customers, "customer_id", customer)
    return customer_id


def delete_customer(tables: Tables, /, customer_id: Any = None) -> str:
    tables.customers, answer = deleted(tables.customers, "customer_id", customer_id, "Customer")
    return answer


def _is_within(date: Any, first: str | None, last: str | None) -> bool:
    """Dates are compared as text, so a bound without a time is the start of its day. No date is in no range."""
    if not first and not last:
        return True
    return date is not None and (not first or date >= first) and (not last or date <= last)


SEARCHING: dict[str, Tool] = {"customer_relationship_manager_search_customers": search_customers}
CHANGING: dict[str, Tool] = {
    "customer_relationship_manager_update_customer": update_customer,
    "customer_relationship_manager_add_customer": add_customer,
    "customer_relationship_manager_delete_customer": delete_customer,
}
