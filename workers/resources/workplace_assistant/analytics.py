"""Tools of the web analytics: counts for each day of a range of days, both ends included, and plots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymq.workers.resources.workplace_assistant.records import choices
from gymq.workers.resources.workplace_assistant.tables import Row, Tables, Tool

VALUES = (
    *("total_visits", "session_duration_seconds", "user_engaged", "visits_direct", "visits_referral"),
    *("visits_search_engine", "visits_social_media"),
)
PLOT_TYPES = ("bar", "line", "scatter", "histogram")


def get_visitor_information_by_id(tables: Tables, /, visitor_id: Any = None) -> list[Row] | str:
    if not visitor_id:
        return "Visitor ID not provided."
    visits = [visit for visit in tables.visits if visit["visitor_id"] == visitor_id]
    return [visit | {"user_engaged": visit["user_engaged"] == "True"} for visit in visits] or "Visitor not found."


def create_plot(
    tables: Tables,
    /,
    time_min: Any = None,
    time_max: Any = None,
    value_to_plot: Any = None,
    plot_type: Any = None,
) -> str:
    if not time_min:
        return "Start date not provided."
    if not time_max:
        return "End date not provided."
    if value_to_plot not in VALUES:
        return f"Value to plot not valid. Please choose from: {choices(VALUES)}."
    if plot_type not in PLOT_TYPES:
        return f"Plot type not valid. Please choose from: {choices(PLOT_TYPES)}."
    path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
    tables.plots = (*tables.plots, {"file_path": path})
    return path


def total_visits_count(tables: Tables, /, time_min: str | None = None, time_max: str | None = None) -> dict[str, float]:
    return _by_day(tables, time_min, time_max, len)


def engaged_users_count(
    tables: Tables, /, time_min: str | None = None, time_max: str | None = None
) -> dict[str, float]:
    return _by_day(tables, time_min, time_max, lambda visits: _count(visits, "user_engaged", "True"))


def traffic_source_count(
    tables: Tables,
    /,
    time_min: str | None = None,
    time_max: str | None = None,
    traffic_source: str | None = None,
) -> dict[str, float]:
    if not traffic_source:
        return _by_day(tables, time_min, time_max, len)
    return _by_day(tables, time_min, time_max, lambda visits: _count(visits, "traffic_source", traffic_source))


def get_average_session_duration(
    tables: Tables, /, time_min: str | None = None, time_max: str | None = None
) -> dict[str, float]:
    return _by_day(tables, time_min, time_max, _mean_duration)


def _by_day(
    tables: Tables, first: str | None, last: str | None, figure: Callable[[list[Row]], float]
) -> dict[str, float]:
    days: dict[str, list[Row]] = {}
    for visit in tables.visits:
        day = visit["date_of_visit"]
        if (not first or day >= first) and (not last or day <= last):
            days.setdefault(day, []).append(visit)
    return {day: figure(days[day]) for day in sorted(days)}


def _count(visits: list[Row], column: str, value: str) -> int:
    return sum(visit[column] == value for visit in visits)


def _mean_duration(visits: list[Row]) -> float:
    return sum(float(visit["session_duration_seconds"]) for visit in visits) / len(visits)


READING: dict[str, Tool] = {
    "analytics_get_visitor_information_by_id": get_visitor_information_by_id,
    "analytics_total_visits_count": total_visits_count,
    "analytics_engaged_users_count": engaged_users_count,
    "analytics_traffic_source_count": traffic_source_count,
    "analytics_get_average_session_duration": get_average_session_duration,
}
CHANGING: dict[str, Tool] = {"analytics_create_plot": create_plot}
