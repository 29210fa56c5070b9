"""Assigning to as many members of one side as possible their own partner on the other side."""

from __future__ import annotations

from collections import deque


def maximum_matching(candidates: list[list[int]]) -> dict[int, int]:
    """A maximum matching of a bipartite graph, by augmenting paths (Kuhn, 1955).

    Those with the fewest candidates come first; who was given a partner once keeps one.

    Args:
        candidates: for each member of the one side the members of the other side that would do.

    Returns:
        The partner of each member of the one side that got one.
    """
    partners: dict[int, int] = {}
    taken_by: dict[int, int] = {}
    for member in sorted(range(len(candidates)), key=lambda index: len(candidates[index])):
        _find_partner(member, candidates, partners, taken_by)
    return partners


def _find_partner(member: int, candidates: list[list[int]], partners: dict[int, int], taken_by: dict[int, int]) -> None:
    """Give the member a partner if the others can make room."""
    reached_from: dict[int, int] = {}
    pending = deque([member])
    while pending:
        current = pending.popleft()
        for candidate in candidates[current]:
            if candidate in reached_from:
                continue
            reached_from[candidate] = current
            if candidate not in taken_by:
                _hand_on(candidate, reached_from, partners, taken_by)
                return
            pending.append(taken_by[candidate])


def _hand_on(free: int, reached_from: dict[int, int], partners: dict[int, int], taken_by: dict[int, int]) -> None:
    """Each member on the path to a free candidate takes the next one; the first on the path had none."""
    candidate: int | None = free
    while candidate is not None:
        member = reached_from[candidate]
        left = partners.get(member)
        partners[member], taken_by[candidate] = candidate, member
        candidate = left
