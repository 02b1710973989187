"""The console in a real browser: every view, every action, by what a person sees and presses."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_SECONDS

from .scene import (
    HOSTILE,
    ConsoleBroker,
    console_broker,
    console_cluster,
    furnish,
    wait_for_leader,
)

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
WIDE, NARROW = (1280, 800), (360, 740)
GROUP = "topics/orders/groups/billing"
VIEWS = [
    "overview", "topics", "topics/orders", "topics/payments/details", "topics/orders/groups",
    "groups", GROUP, f"{GROUP}/dead-letters?letter=3", "dead-letters", "pipelines", "connections",
    "webhooks", "keys", "events", "settings",
]  # fmt: skip
DIALOGS = [
    ("topics", "Create topic"), ("topics/orders", "Publish"), ("topics/orders", "Delete"),
    (GROUP, "Reset"), (f"{GROUP}/dead-letters?letter=3", "Edit and redrive…"),
    ("keys", "Create key"), ("webhooks", "Create webhook"),
]  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleBroker]:
    with console_broker(tmp_path_factory.mktemp("console")) as broker:
        furnish(broker)
        yield broker


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("NOT TESTED IN A BROWSER: chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Person:
    """Somebody at the console. What goes wrong in the page, or leaves it, is remembered."""

    def __init__(self, browser: Any, url: str, size: tuple[int, int] = WIDE, **options: Any):
        width, height = size
        self.url = url
        self.page = browser.new_page(viewport={"width": width, "height": height}, **options)
        self.page.set_default_timeout(PATIENCE_SECONDS * 1000)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._requested)
        self.page.on("console", self._said)

    def _said(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.faults.append(message.text)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.faults.append(f"asked {request.url}")

    def goes(self, where: str, waits_for: str = "main h1") -> None:
        self.page.goto(f"{self.url}/#/{where}")
        self.page.wait_for_selector(waits_for)

    def presses(self, text: str, where: str = "") -> None:
        self.page.locator(where or "body").get_by_role(
            "button", name=text, exact=True
        ).first.click()

    def types(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).last.fill(text)

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()

    def waits(self, for_what: str) -> None:
        """Until an expression is true. (The page lets nobody evaluate one, so it is asked.)"""
        until = time.monotonic() + PATIENCE_SECONDS
        while not self.page.evaluate(for_what):
            assert time.monotonic() < until, for_what
            self.page.wait_for_timeout(20)

    def confirms(self, button: str) -> None:
        self.presses(button, "dialog")

    def leaves(self) -> None:
        assert self.page.evaluate("window.hacked") is None
        self.page.close()
        assert self.faults == []


@pytest.fixture
def person(browser: Any, broker: ConsoleBroker) -> Iterator[Person]:
    person = Person(browser, broker.url)
    yield person
    person.leaves()


def faults_of(person: Person, where: str, only: str = "") -> list[tuple[str, str, str]]:
    """What axe-core calls serious; of one rule alone if it is named."""
    if not person.page.evaluate("'axe' in window"):
        person.page.evaluate(AXE.read_text())
    rules = f", runOnly: ['{only}']" if only else ""
    found = person.page.evaluate(f"axe.run(document, {{resultTypes: ['violations']{rules}}})")
    return [
        (where, one["id"], one["nodes"][0]["html"][:200])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def check_view(person: Person, view: str) -> list[tuple[str, str, str]]:
    """In both colour schemes."""
    person.waits("!document.querySelector('p.empty[role=status]')")
    faults = faults_of(person, view)
    overhang = person.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert overhang <= 0, f"{view} is wider than its window"
    person.page.emulate_media(color_scheme="dark")
    faults += faults_of(person, f"{view}, dark", "color-contrast")
    person.page.emulate_media(color_scheme="light")
    return faults


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_every_view_is_drawn_and_has_no_serious_fault_of_accessibility(
    browser: Any, broker: ConsoleBroker, size: tuple[int, int]
) -> None:
    person = Person(browser, broker.url, size, color_scheme="light")
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
    person.page.keyboard.press("Escape")
    person.page.keyboard.press("?")
    person.page.wait_for_selector("dialog[open] dl.keys")
    person.page.keyboard.press("Escape")
    person.page.wait_for_selector("dialog", state="detached")


def test_a_topic_is_made_configured_purged_and_deleted(
    person: Person, broker: ConsoleBroker
) -> None:
    person.goes("topics")
    person.presses("Create topic")
    person.types("Name", "made.here")
    person.types("retention_age", "7d")
    person.confirms("Create")
    person.page.wait_for_selector("h1:has-text('made.here')")
    assert broker.ask("GET", "/topics/made.here")["options"]["retention_age"] == 7 * 86400

    person.presses("Configure")
    person.types("max_deliveries", "9")
    person.confirms("Save")
    person.sees("Changed: max_deliveries.")
    assert broker.ask("GET", "/topics/made.here")["options"]["max_deliveries"] == 9

    broker.publish("made.here", [{"text": "one"}, {"text": "two"}])
    person.presses("Purge")
    assert person.page.locator("dialog button[type=submit]").is_disabled()
    person.types("Type made.here to confirm", "made.here")
    person.confirms("Purge")
    person.sees("2 messages of made.here deleted.")

    person.presses("Delete")
    person.types("Type made.here to confirm", "made.here")
    person.confirms("Delete")
    person.page.wait_for_selector("h1:has-text('Topics')")
    assert broker.http.get("/topics/made.here").status_code == 404


def test_messages_are_found_followed_and_published_again(
    person: Person, broker: ConsoleBroker
) -> None:
    person.goes("topics/orders")
    person.page.wait_for_selector(".messages li")
    person.types("Filter", "value.id ==")
    person.presses("Apply")
    person.page.wait_for_selector("#filter-wrong")
    person.types("Filter", "")
    for keys in ("value.i", " ", "42"):  # what may follow is offered, by what the messages have
        person.page.locator(".filter").press_sequentially(keys)
        if keys != "42":
            person.page.locator("[role=option]").first.wait_for()
            person.page.keyboard.press("ArrowDown")
            person.page.keyboard.press("Enter")
    assert person.page.locator(".filter").input_value() == "value.id == 42"
    person.page.keyboard.press("Enter")
    person.waits("document.querySelectorAll('.messages li').length === 1")
    person.page.locator(".messages .row").click()
    person.sees('"id": 42')
    person.page.get_by_label("Show as").select_option("hex")
    person.sees("000000  7b 22")
    person.presses("Publish again…")
    person.types("Value", '{"id": 42, "again": true}')
    person.confirms("Publish")
    person.sees("Published to orders at offset")
    newest = broker.ask("GET", "/topics/orders/messages?order=desc&limit=1")["messages"][0]
    assert newest["value"] == '{"id": 42, "again": true}'
    assert newest["headers"]["region"] in ("eu", "us")

    person.goes("topics/clicks")
    person.page.locator(".messages .row").click()
    person.page.locator("option:has-text('auto (msgpack)')").wait_for(state="attached")

    person.goes("topics/invoices?from=live")
    person.page.wait_for_selector("main .state.live")
    broker.publish("invoices", [{"text": "just now"}])
    person.sees("just now")


def test_what_others_wrote_is_text_and_a_large_value_hangs_nothing(
    person: Person, broker: ConsoleBroker
) -> None:
    person.goes("topics/emails")
    person.page.locator(".messages .row").click()
    person.sees("⟨U+202E⟩gnp.exe⟨U+0007⟩")
    assert person.page.locator("main img, main script").count() == 0
    large = "<b>" * (10 * 1024 * 1024 // 3)
    import flintmq

    with flintmq.connect_sync(broker.flint) as mq:
        mq.publish("large", large.encode(), headers={"x": HOSTILE}, key=HOSTILE)
    person.goes("topics/large")
    person.page.locator(".messages .row").click()
    person.sees("the first 2 KiB of 10 MiB")
    person.presses("Show up to 1 MiB")
    person.sees("the first 1 MiB of 10 MiB")
    assert person.page.locator("main b:has-text('<b>')").count() == 0


def test_a_filter_is_completed_by_what_may_follow(person: Person) -> None:
    person.goes("topics")
    said = """async (texts) => {
        const module = new URL("console/any/views/filter.js", document.baseURI);
        const { completions, fieldsOf } = await import(module);
        const value = '{"id": 7, "to": {"city": "Ulm"}}';
        const message = {
          headers: { region: "eu" }, key: "k", key_encoding: "text", encoding: "text", value,
        };
        const fields = fieldsOf([message, { ...message, value: "no JSON" }]);
        return texts.map((text) => completions(text, fields).options);
    }"""
    texts = [
        "value.", "value.to.city =", "value.to.city == ", "value.id in [",
        'headers.region == "e', "value.id == 7 ", "value.id == 7 and he", "priority > 3 o", "not ",
    ]  # fmt: skip
    found = dict(zip(texts, person.page.evaluate(said, texts), strict=True))
    assert found["value."] == ["value.id", "value.to.city"]
    assert found["value.to.city == "] == ['"Ulm" ']
    assert found["value.id in ["] == ["7 "]
    assert found['headers.region == "e'] == ['"eu" ']
    assert found["value.id == 7 "] == ["and ", "or "]
    assert found["value.id == 7 and he"] == ["headers.region", "headers."]
    assert found["priority > 3 o"] == ["or "]
    assert found["not "][:2] == ["headers.region", "key"]
    assert found["value.to.city ="] == ["== "]


BOMBS = {
    # 200 arrays in one another, each said to have a million values
    "msgpack": (b"\xdd\x00\x0f\x00\x00" * 200 + b"\x00" * 1_000_000, "application/msgpack", "hex"),
    # lines that would be indented by 20 kB each
    "json": (b"[" * 9_000 + b"1,\n" * 300_000 + b"1" + b"]" * 9_000, "application/json", "json"),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_value_that_would_take_all_memory_to_decode_is_shown_as_it_is(
    person: Person, broker: ConsoleBroker, kind: str
) -> None:
    import flintmq

    value, content_type, shown = BOMBS[kind]
    with flintmq.connect_sync(broker.flint) as mq:
        mq.publish(f"bomb.{kind}", value, content_type=content_type)
    person.goes(f"topics/bomb.{kind}")
    person.page.locator(".messages .row").click()
    person.presses("Show up to 1 MiB")
    person.page.wait_for_selector("text=Show up to 1 MiB", state="detached")
    person.page.locator(f"option:has-text('auto ({shown})')").wait_for(state="attached")
    person.page.locator(".messages .row").click()  # it still answers
    person.waits("!document.querySelector('.messages .value')")


def test_hostile_names_are_text_everywhere_and_their_topic_can_be_deleted(
    person: Person, broker: ConsoleBroker
) -> None:
    import flintmq

    name = "<img src=x onerror=window.hacked=1 x='\u202e&amp;"
    with flintmq.connect_sync(broker.flint) as mq:
        mq.publish(name, b"x")
        (message,) = mq.poll(name, name, 1)
        message.reject(HOSTILE)
    shown = "<img src=x onerror=window.hacked=1 x='⟨U+202E⟩&amp;"
    for view in ("topics", "groups", "dead-letters"):
        person.goes(view, f"tbody a:has-text({json.dumps(shown, ensure_ascii=False)})")
    person.page.locator("tbody a").filter(has_text=shown).first.click()
    person.page.locator(".letters .row").click()
    person.sees("Why it died")
    assert person.page.locator("main img").count() == 0
    person.page.locator(".crumbs a").nth(1).click()
    person.presses("Delete")
    person.page.locator("dialog input").fill(shown)  # nobody can type what is not seen
    person.confirms("Delete")
    person.page.wait_for_selector("h1:has-text('Topics')")
    assert name not in str(broker.ask("GET", "/topics?limit=1000"))


def test_avro_is_decoded_by_the_version_of_the_schema_that_wrote_it(
    person: Person, broker: ConsoleBroker
) -> None:
    import flintmq

    fields = [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]
    schema = {"type": "record", "name": "Seen", "fields": fields}
    with flintmq.connect_sync(broker.flint) as mq:
        mq.create_topic("seen")
        made = mq.add_schema("seen", schema)
        mq.publish("seen", {"at": 0}, format="avro", schema=made.text)
    person.goes("topics/seen")
    person.page.locator(".messages .row").click()
    person.sees('"at": "1970-01-01T00:00:00.000Z"')


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
    import flintmq

    broker.publish("sales", [{"json": {"n": n}} for n in range(10)])
    with (
        flintmq.connect_sync(broker.flint) as mq,
        mq.reader("sales", name="pipeline.rollup.totals") as reader,
    ):
        reader.read_batch(4)
        reader.commit()
        person.goes("pipelines", "tbody a:has-text('totals')")
        person.page.wait_for_selector("tbody tr:has-text('totals') >> text=running")
        row = person.page.locator("tbody tr:has-text('totals')").inner_text()
        assert {"rollup", "sales", "40 %", "6"} <= {one.strip() for one in row.split("\t")}
    person.page.wait_for_selector("tbody tr:has-text('totals') >> text=not running")
    person.page.locator("tbody a:has-text('totals')").click()
    person.page.wait_for_selector("h1:has-text('pipeline.rollup.totals')")


def test_a_group_is_paused_resumed_and_reset_after_a_preview(
    person: Person, broker: ConsoleBroker
) -> None:
    broker.publish("audit.log", [{"text": str(n)} for n in range(5)])
    path = "/topics/audit.log/groups/reader"
    found = broker.ask("POST", f"{path}/poll", {"max": 5, "wait": 5})["messages"]
    broker.ask("POST", f"{path}/ack", {"leases": [one["lease"] for one in found]})
    person.goes("topics/audit.log/groups/reader")
    person.presses("Pause")
    person.sees("The group is paused")
    assert broker.ask("GET", path)["stats"]["paused"]
    person.presses("Resume")
    person.sees("The group was resumed.")
    person.presses("Reset")
    person.sees("messages that were already processed would be delivered again")
    assert "Up to 5" in person.page.locator(".preview-box").inner_text()
    person.confirms("Reset")
    person.sees("Group reader was reset.")
    assert broker.ask("GET", path)["stats"]["lag"] == 5
    person.presses("Delete")
    person.types("Type reader to confirm", "reader")
    person.confirms("Delete")
    person.page.wait_for_selector(".tabs a[aria-current]:has-text('Groups')")
    assert broker.http.get(path).status_code == 404


def letters_of(broker: ConsoleBroker, topic: str, reasons: list[str]) -> str:
    """A topic with dead letters; where they are in the page."""
    broker.publish(topic, [{"json": {"n": n}} for n in range(len(reasons))])
    broker.kill_letters(topic, "g", reasons)
    return f"topics/{topic}/groups/g/dead-letters"


def test_a_dead_letter_is_edited_and_of_two_people_one_wins_and_the_other_is_told(
    browser: Any, broker: ConsoleBroker
) -> None:
    where = letters_of(broker, "bills", ["no address"])
    people = [Person(browser, broker.url) for _ in range(2)]
    for number, person in enumerate(people):
        person.goes(where)
        person.page.locator(".letters .row").click()
        person.sees("Why it died")
        person.presses("Edit and redrive…")
        person.types("Value", f'{{"n": 0, "edited": {number}}}')
        person.types("Headers", "fixed: by hand")
    for person in people:
        person.confirms("Put back")
        person.page.wait_for_selector(".notice.good, dialog .fault")
    people[0].sees("The edited message went back to its group.")
    people[1].sees("somebody else has redriven or discarded it")

    (got,) = broker.ask("POST", "/topics/bills/groups/g/poll", {"max": 9, "wait": 5})["messages"]
    assert (got["value"], got["headers"]) == ('{"n": 0, "edited": 0}', {"fixed": "by hand"})
    for person in people:
        person.leaves()


def test_dead_letters_go_back_by_choice_by_filter_and_all_and_are_discarded(
    person: Person, broker: ConsoleBroker
) -> None:
    where = letters_of(broker, "mails", ["a"] * 2 + ["b"] * 4)
    left = "/topics/mails/groups/g"
    person.goes(where)
    person.page.get_by_label("Reason").select_option("a")
    person.waits("document.querySelectorAll('.letters li').length === 2")
    person.page.get_by_label("Select dead letter 0").check()
    person.presses("Redrive selected (1)")
    person.page.wait_for_selector("dialog >> text=Put back: 1 of 1")
    person.confirms("Close")

    person.page.get_by_label("Select dead letter 1").check()
    person.presses("Discard selected (1)")
    person.confirms("Discard")
    person.sees("1 dead letter discarded.")

    person.presses("Redrive by filter…")
    person.page.locator("dialog").get_by_label("Filter").fill("value.n == 2")
    person.confirms("Redrive")
    person.page.wait_for_selector("dialog >> text=Checked: 4")
    assert "Put back: 1" in person.page.locator("dialog").inner_text()
    person.confirms("Close")
    assert broker.ask("GET", left)["stats"]["dead_letters"] == 3
    person.page.get_by_label("Reason").select_option("")
    person.presses("Redrive all…")
    person.confirms("Redrive all")
    person.page.wait_for_selector("dialog >> text=Put back: 3")
    person.confirms("Close")
    person.sees("This group has no dead letters.")
    assert broker.ask("GET", left)["stats"]["dead_letters"] == 0


def test_connections_and_webhooks_are_listed_and_ended(
    person: Person, broker: ConsoleBroker
) -> None:
    import flintmq

    with flintmq.connect_sync(broker.flint) as mq:
        mq.publish("orders", b"x")
        person.goes("connections")
        person.page.locator("tbody button").first.click()
        person.confirms("Close")
        person.sees("was closed.")
    person.goes("webhooks")
    person.presses("Create webhook")
    for label, text in (("Topic", "orders"), ("Group", "hook"), ("URL", "http://127.0.0.1:9/x")):
        person.types(label, text)
    person.confirms("Create")
    person.sees("whsec_")
    person.confirms("I have copied it")
    person.types("Search webhooks", "hook")
    person.presses("Pause", "tbody")
    person.sees("The webhook is paused.")
    person.page.get_by_label("Delete the webhook of orders hook").click()
    person.confirms("Delete")
    person.sees("The webhook was deleted")


def test_keys_are_shown_once_and_what_a_key_may_not_do_is_not_offered(
    browser: Any, tmp_path: Path
) -> None:
    with console_broker(tmp_path) as broker:
        broker.ask("PUT", "/topics/orders")
        broker.ask("PUT", "/topics/secret")
        person = Person(browser, broker.url)
        person.goes("keys")
        person.presses("Create key")
        person.types("Name", "root")
        person.sees("every client of this broker needs one")
        person.confirms("Create")
        root = person.page.locator(".secret").inner_text()
        person.confirms("I have copied it")
        assert broker.http.get("/topics").status_code == 401
        person.presses("Create key")
        person.types("Name", "reader")
        person.types("Topics", "orders")
        person.confirms("Create")
        reader = person.page.locator(".secret").inner_text()
        person.confirms("I have copied it")
        assert reader not in person.page.content()

        person.page.reload()  # the key was in the memory of the page only
        person.types("API key", "flint_wrong")
        person.presses("Sign in")
        person.page.wait_for_selector(".fault")
        person.types("API key", reader)
        person.presses("Sign in")
        person.goes("topics")
        person.page.wait_for_selector("tbody a:has-text('orders')")
        assert person.page.locator("nav li").all_inner_texts() == [
            "Topics", "Groups", "Dead letters", "Pipelines",
        ]  # fmt: skip
        assert person.page.get_by_text("secret").count() == 0
        assert person.page.get_by_role("button", name="Create topic").count() == 0
        person.goes("topics/orders")
        assert person.page.locator(".actions button").count() == 0
        person.presses("Sign out")
        person.types("API key", root)
        person.presses("Sign in")
        person.page.wait_for_selector("main h1")
        broker.http.headers["authorization"] = f"Bearer {root}"
        grants = {"name": "writer", "grants": {"orders": ["publish"]}}
        writer = broker.ask("POST", "/keys", grants)["key"]
        person.presses("Sign out")
        person.types("API key", writer)
        person.presses("Sign in")
        person.page.wait_for_selector(".actions button")
        assert person.page.locator(".actions button").all_inner_texts() == ["Publish"]
        assert person.page.locator(".tabs a").all_inner_texts() == ["Details"]
        person.presses("Sign out")
        person.types("API key", root)
        person.presses("Sign in")
        person.goes("keys")
        person.page.get_by_label("Remove key reader").click()
        person.types("Type reader to confirm", "reader")
        person.confirms("Remove")
        person.sees("Key reader was removed")
        assert person.page.context.cookies() == []
        person.leaves()


def test_nodes_of_a_cluster_are_shown_led_by_another_added_and_removed(
    browser: Any, tmp_path: Path
) -> None:
    with console_cluster(tmp_path) as nodes:
        first = nodes[0]
        leader = wait_for_leader(first)
        other, third = (name for name in ("n1", "n2", "n3") if name != leader)
        first.publish("orders", [{"text": "x"}])
        person = Person(browser, first.url, color_scheme="light")
        for size in (WIDE, NARROW):
            person.page.set_viewport_size({"width": size[0], "height": size[1]})
            for view in ("overview", "cluster"):
                person.goes(view)
                assert check_view(person, view) == []
        person.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
        person.goes("cluster")
        (checks,) = person.page.locator(".checks").all_inner_texts()
        assert re.search("No problems found|warning|error", checks)
        person.page.get_by_label(f"Make leader: {other}").click()
        person.confirms("Transfer")
        person.sees(f"{other} was asked to take over.")
        person.page.wait_for_selector(f"tr:has-text('{other}') .badge.good:has-text('leader')")

        person.presses("Add node")
        person.types("Name", "n4")
        person.types("Peer address", "127.0.0.1:1")
        person.confirms("Add")
        person.sees("n4 may join now")
        person.page.get_by_label(f"Remove {third}").click()
        person.types(f"Type {third} to confirm", third)
        person.confirms("Remove")
        person.sees(f"{third} was removed from the cluster.")
        person.leaves()
