"""What the model reads of search results and pages."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

MAX_CHARS = 2000
CUT = "[...truncated, use scroll_page for full content]"

# Lengths are limited, so that no page makes these search for long.
NAVIGATION = re.compile(r"^\[(?:Jump to content|Search|Read|Edit|View history)[^\]]{0,1000}+\][^\n]*", re.MULTILINE)
LANGUAGE_EDITION = re.compile(r"\[[^\]]{1,300}+\]\(https?://[a-z]{2,3}\.wikipedia\.org/[^)]{0,1000}+\)")
ANCHOR_ITEM = re.compile(r"^[ \t]{0,100}\*[ \t]{0,100}\[[^\]]{0,300}+\]\(#[^)]{0,300}+\)[ \t]*$", re.MULTILINE)
INVISIBLE = re.compile("[\u200b-\u200d\ufeff]")
BRACKETS = str.maketrans("【】", "[]")


def cleaned(text: str) -> str:
    """Return the text without the navigation of wiki pages, invisible characters and surplus spaces."""
    text = text.replace("[edit]", "")
    for pattern in (NAVIGATION, LANGUAGE_EDITION, ANCHOR_ITEM, INVISIBLE):
        text = pattern.sub("", text)
    text = "\n".join(line.rstrip(" \t") for line in text.translate(BRACKETS).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def truncated(text: str) -> str:
    """Return the first 2,000 characters, up to the end of a line if there is one."""
    if len(text) <= MAX_CHARS:
        return text
    head = text[:MAX_CHARS]
    return head.rpartition("\n")[0] or head


def numbered(text: str) -> str:
    """Return the text with a number before each line."""
    return "\n".join(f"L{number}: {line}" for number, line in enumerate(text.split("\n")))


def host_of(url: str) -> str:
    """Return the host of an address; the whole text if it has none."""
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def is_excluded(url: str, domains: list[str]) -> bool:
    """Return whether an address, also one without a scheme, belongs to one of the domains or to a subdomain."""
    try:
        host = urlsplit(url if "://" in url else f"//{url.lstrip('/')}").hostname or ""
    except ValueError:
        host = url.split("/")[0]
    host = host.lower().rstrip(".")
    return any(host == domain or host.endswith(f".{domain}") for domain in map(str.lower, domains))


def search_results(answer: dict[str, Any]) -> str:
    """Return the service's answer to a search: its ready answer, or the list of pages."""
    if answer.get("answer") is not None:
        return f"Search Answer\n{'=' * 14}\n{answer['answer']}\n"
    lines = ["Search Results", "=" * 14]
    for number, result in enumerate(answer.get("results") or [], 1):
        url, content = result.get("url") or "", result.get("content") or ""
        lines.append(f"[{number}] {result.get('title') or ''} ({host_of(url)})")
        lines += [f"    URL: {url}", f"    Summary: {truncated(cleaned(content))}", ""]
    return "\n".join(lines) + "\n"


def found_in_page(url: str, query: str, content: str) -> str:
    """Return what a page says about a query."""
    text = cleaned(content)
    head = [f"Content from: {host_of(url)}", f"URL: {url}", f'Query: "{query}"', "=" * 40]
    shown = truncated(text)
    return "\n".join([*head, numbered(shown), *([CUT] if len(shown) < len(text) else [])])


def scrolled(url: str, words: list[str], start: int, count: int) -> str:
    """Return a part of a page, counted in words; from its end, as in a slice, if `start` is negative."""
    end = min(start + count, len(words))
    head = [f"Page content from: {host_of(url)}", f"URL: {url}"]
    shown = f"Showing words [{start}-{end}] of {len(words)}"
    return "\n".join([*head, shown, "=" * 40, numbered(cleaned(" ".join(words[start : start + count])))])
