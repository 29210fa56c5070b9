"""Tools of the mailbox and the address book."""

from __future__ import annotations

from typing import Any

from gymq.workers.resources.workplace_assistant.dates import NOW_TEXT, parse_time
from gymq.workers.resources.workplace_assistant.records import PAGE_SIZE, deleted, field_of, find, next_id, page_of
from gymq.workers.resources.workplace_assistant.tables import Row, Tables, Tool

SENT = "Email sent successfully."
NOT_FOUND = "Email not found."
BAD_ADDRESS = "Invalid recipient email address."

_LONGEST_QUERY = 1_000  # characters; each word is looked for in every email, on the event loop


def find_email_address(tables: Tables, /, name: str = "") -> list[str] | str:
    if not name:
        return "Name not provided."
    wanted = name.lower()
    return [address for address in tables.addresses if wanted in address.lower()]


def get_email_information_by_id(tables: Tables, /, email_id: Any = None, field: Any = None) -> Row | str:
    return field_of(tables.emails, "email_id", email_id, field, "Email")


def search_emails(
    tables: Tables,
    /,
    query: str = "",
    date_min: str | None = None,
    date_max: str | None = None,
    page: int = 1,
    page_size: int = PAGE_SIZE,
) -> Row | str:
    if len(query) > _LONGEST_QUERY:
        raise ValueError(f"a query has at most {_LONGEST_QUERY:,} characters")
    words = query.lower().split()
    found = [email for email in tables.emails if _has_all(_searched_text(email), words)]
    found.sort(key=lambda email: email["sent_datetime"] or "", reverse=True)
    if date_min:
        first = parse_time(date_min).date()
        found = [email for email in found if parse_time(email["sent_datetime"]).date() >= first]
    if date_max:
        last = parse_time(date_max).date()
        found = [email for email in found if parse_time(email["sent_datetime"]).date() <= last]
    return page_of("emails", found, page, page_size) if found else "No emails found."


def send_email(tables: Tables, /, recipient: Any = None, subject: Any = None, body: Any = None) -> str:
    if not recipient or not subject or not body:
        return "Recipient, subject, or body not provided."
    return _sent(tables, recipient, subject, body)


def _sent(tables: Tables, recipient: Any, subject: Any, body: Any) -> str:
    if not _is_address(recipient):
        return BAD_ADDRESS
    email = {
        "email_id": str(next_id(tables.emails, "email_id")),
        "inbox/outbox": "outbox",
        "sender/recipient": recipient.lower(),
        "subject": subject,
        "sent_datetime": NOW_TEXT,
        "body": body,
    }
    tables.emails = (*tables.emails, email)
    return SENT


def delete_email(tables: Tables, /, email_id: Any = None) -> str:
    tables.emails, answer = deleted(tables.emails, "email_id", email_id, "Email")
    return answer


def forward_email(tables: Tables, /, email_id: Any = None, recipient: Any = None) -> str:
    if not email_id or not recipient:
        return "Email ID or recipient not provided."
    if not _is_address(recipient):
        return BAD_ADDRESS
    email = find(tables.emails, "email_id", email_id)
    if email is None:
        return NOT_FOUND
    answer = _sent(tables, recipient, f"FW: {email['subject'] or ''}", email["body"])
    return "Email forwarded successfully." if answer == SENT else answer


def reply_email(tables: Tables, /, email_id: Any = None, body: Any = None) -> str:
    if not email_id or not body:
        return "Email ID or body not provided."
    email = find(tables.emails, "email_id", email_id)
    if email is None:
        return NOT_FOUND
    answer = _sent(tables, email["sender/recipient"], f"RE: {email['subject'] or ''}", body)
    return "Email replied successfully." if answer == SENT else answer


def _is_address(recipient: Any) -> bool:
    return "@" in recipient and "." in recipient


def _has_all(text: str, words: list[str]) -> bool:
    return all(word in text for word in words)


def _searched_text(email: Row) -> str:
    return " ".join(str(email[column] or "") for column in ("subject", "body", "sender/recipient")).lower()


READING: dict[str, Tool] = {
    "company_directory_find_email_address": find_email_address,
    "email_get_email_information_by_id": get_email_information_by_id,
    "email_search_emails": search_emails,
}
CHANGING: dict[str, Tool] = {
    "email_send_email": send_email,
    "email_delete_email": delete_email,
    "email_forward_email": forward_email,
    "email_reply_email": reply_email,
}
