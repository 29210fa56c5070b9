"""The page for people who see little, use no mouse, or want no motion: checked by axe-core and by keys."""

from itertools import pairwise

import pytest

from tests.support.browser import Page, needs_browser

from .axe import violations
from .conftest import Web, rollout
from .test_screenshots import store

pytestmark = needs_browser


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_in_any_view(web: Web, run: str, page: Page, scheme: str) -> None:
    await store(web, run)
    tabs = [f"run/{run}-step80?tab={tab}" for tab in ("tasks", "charts", "configuration")]
    views = ["", f"run/{run}", f"run/{run}?tab=rollouts", *tabs, f"run/{run}?tab=failures"]
    views += [
        f"rollout/{run}/0/0",
        f"rollout/{run}/1/0",
        f"rollout/{run}/0/1",
        f"compare/{run}-step80/{run}-step80-b",
        f"compare/{run}/{run}/1/0",
        "logs",
    ]
    await page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    found: dict[str, list[str]] = {}
    for view in views:
        await page.open(f"{web.url}#/{view}")
        await page.whole(1280)
        if view == f"run/{run}?tab=rollouts":
            await page.value("document.querySelector('.menu').open = true")
        if view == f"rollout/{run}/0/0":
            await page.unfold()
            await page.value("document.querySelector('.tokens button').click()")
            await page.until("document.querySelector('.ids') !== null")
            await page.rendered()
        if wrong := await violations(page):
            found[view] = wrong
    assert not found, "\n".join(f"{view}: {one}" for view, wrong in found.items() for one in wrong)


async def test_keys_reach_what_a_mouse_reaches_in_the_order_of_the_page(web: Web, run: str, page: Page) -> None:
    await web.announce(run, num_rollouts=1)
    await web.store(rollout(run, 0))
    await web.profile()
    await page.open(f"{web.url}#/run/{run}?tab=rollouts")
    await page.until("document.querySelector('.rollouts tbody a') !== null")
    reached: list[float] = []
    for _ in range(60):
        await page.press("Tab")
        place = await page.value(
            "(() => { const one = document.activeElement; return one === document.body ? null "
            ": [one.getBoundingClientRect().top + scrollY, one.outerHTML.slice(0, 120)] })()"
        )
        if place is None:
            break
        reached.append(place[0])
        if "rollout/" in place[1]:
            break
    assert len(reached) > 8
    assert all(later >= earlier - 40 for earlier, later in pairwise(reached))


async def test_nothing_moves_for_those_who_want_no_motion(web: Web, page: Page) -> None:
    await page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    await page.open(web.url)
    await page.shows("Runs")
    moving = (
        "[...document.querySelectorAll('*')].filter((one) => parseFloat(getComputedStyle(one).transitionDuration) > 0"
    )
    assert await page.value(f"{moving} || getComputedStyle(one).animationName !== 'none').length") == 0
