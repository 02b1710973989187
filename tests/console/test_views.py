"""Every view of the console: how it is drawn, reached by keys, searched and ordered."""

from __future__ import annotations

from typing import Any

import pytest

import flintmq

from .person import LOOKS, Person, check_view
from .scene import ConsoleBroker

pytestmark = pytest.mark.slow

GROUP = "topics/orders/groups/billing"
VIEWS = [
    "overview", "topics", "topics/orders", "topics/orders?from=live", "topics/payments/details",
    "topics/orders/groups", "groups", GROUP, f"{GROUP}/dead-letters?letter=3", "dead-letters",
    "pipelines", "connections", "webhooks", "keys", "events", "settings",
]  # fmt: skip
DIALOGS = [
    ("topics", "Create topic"), ("topics/orders", "Publish"), ("topics/orders", "Delete"),
    ("topics/orders", "Purge"), ("topics/orders", "Configure"), (GROUP, "Reset"),
    (f"{GROUP}/dead-letters?letter=3", "Edit and redrive…"),
    (f"{GROUP}/dead-letters", "Redrive by filter…"), ("keys", "Create key"),
    ("webhooks", "Create webhook"),
]  # fmt: skip


@pytest.mark.parametrize("look", LOOKS, indirect=True, scope="package")
def test_every_view_is_drawn_and_has_no_serious_fault_of_accessibility(
    browser: Any, broker: ConsoleBroker, look: str
) -> None:
    person = Person(browser, broker.url, look)
    faults = []
    for view in VIEWS:
        person.goes(view)
        faults += check_view(person, view)
    for view, button in DIALOGS:
        person.goes(view)
        person.presses(button)
        faults += check_view(person, f"{view}, {button}")
        person.page.keyboard.press("Escape")
    assert faults == []
    person.leaves()


def test_the_keyboard_reaches_views_search_and_help(person: Person) -> None:
    person.goes("overview")
    person.page.keyboard.press("g")
    person.page.keyboard.press("t")
    person.page.wait_for_selector("h1:has-text('Topics')")
    person.page.wait_for_selector("[data-search]")
    person.page.keyboard.press("/")
    person.page.keyboard.type("inv")
    person.waits("document.querySelectorAll('tbody tr').length === 1")
    assert "q=inv" in person.page.url
    person.page.keyboard.press("ArrowDown")
    person.waits("document.activeElement.textContent === 'invoices'")
    person.goes("groups")
    person.goes("topics?q=orders", "tbody a:has-text('dead.orders.billing')")
    dead = "dead.orders.billing"
    for key, row in (("j", dead), ("j", "orders"), ("k", dead)):
        person.page.keyboard.press(key)
        person.waits(f"document.activeElement.textContent === '{row}'")
    person.page.keyboard.press("?")
    person.page.wait_for_selector("dialog[open] dl.keys")
    person.page.keyboard.press("Escape")
    person.page.wait_for_selector("dialog", state="detached")


def test_the_overview_follows_what_the_broker_does(person: Person, broker: ConsoleBroker) -> None:
    person.goes("overview", "nav .state.live")
    tile = person.page.locator("a.tile:has-text('Topics') b")
    topics = int(tile.text_content())
    broker.ask("PUT", "/topics/one.more")
    person.waits(
        "[...document.querySelectorAll('a.tile')].some((one) => "
        f"one.textContent.startsWith('Topics{topics + 1}'))"
    )
    broker.ask("DELETE", "/topics/one.more")
    person.page.locator("a.tile:has-text('Dead letters')").click()
    person.page.wait_for_selector("h1:has-text('Dead letters')")


def test_events_and_settings_are_searched_and_narrowed(person: Person) -> None:
    person.goes("events", "tbody tr:has-text('ready')")
    person.page.get_by_label("Show").select_option("bad")
    assert "level=bad" in person.page.url
    assert person.page.locator("tbody .badge", has_text="info").count() == 0
    person.goes("settings", "tbody tr")
    person.types("Search settings", "http_cpu_share")
    person.waits("document.querySelectorAll('tbody tr').length === 1")
    row = person.page.locator("tbody tr").text_content()
    assert "0.8" in row
    assert "FLINTMQ_HTTP_CPU_SHARE" in row


def test_a_message_a_search_and_an_order_are_in_the_address(
    browser: Any, person: Person, broker: ConsoleBroker
) -> None:
    person.goes("topics/orders")
    person.page.locator(".messages .row").nth(3).click()
    person.page.wait_for_selector(".messages .value")
    person.presses("Older")
    person.page.wait_for_selector(".messages li")
    person.page.locator(".messages .row").nth(2).click()
    text = person.page.locator(".messages .value").inner_text()
    colleague = Person(browser, broker.url)
    colleague.page.goto(person.page.url)
    colleague.page.wait_for_selector(".messages .value")
    assert colleague.page.locator(".messages .value").inner_text() == text
    colleague.goes("topics?q=orders&sort=-messages")
    assert colleague.page.locator("tbody a").first.inner_text() == "orders"
    assert colleague.page.locator("th[aria-sort=descending]").inner_text().startswith("Messages")
    colleague.page.locator("th button").first.click()
    assert "sort=name" in colleague.page.url
    colleague.leaves()


def test_pipelines_are_shown_with_lag_and_whether_they_run(
    person: Person, broker: ConsoleBroker
) -> None:
    broker.publish("sales", [{"json": {"n": n}} for n in range(10)])
    with (
        flintmq.connect_sync(broker.flint) as mq,
        mq.reader("sales", name="pipeline.rollup.totals") as reader,
    ):
        reader.read_batch(4)
        reader.commit()
        person.goes("pipelines", "tbody a:has-text('totals')")
        person.page.wait_for_selector("tbody tr:has-text('totals') >> text=running")
        cells = person.page.locator("tbody tr:has-text('totals') td").all_text_contents()
        assert {"rollup", "sales", "40 %", "6"} <= set(cells)
    person.page.wait_for_selector("tbody tr:has-text('totals') >> text=not running")
    person.page.locator("tbody a:has-text('totals')").click()
    person.page.wait_for_selector("h1:has-text('pipeline.rollup.totals')")
