"""Topics and messages in the console: every action."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import flintmq

from .person import Person
from .scene import ConsoleBroker

pytestmark = pytest.mark.slow


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


def offsets_shown(person: Person) -> list[int]:
    found = person.page.locator(".messages .offset").all_text_contents()
    return [int(one) for one in found]


def test_a_message_is_published_and_messages_are_shown_from_anywhere(
    person: Person, broker: ConsoleBroker
) -> None:
    broker.ask("PUT", "/topics/trail")
    person.goes("topics/trail")
    for number in range(60):
        broker.publish("trail", [{"text": f"entry {number}"}])
    person.presses("Publish")
    person.types("Value", '{"by": "hand"')
    person.confirms("Publish")
    person.sees("The value is not JSON")
    person.types("Value", '{"by": "hand"}')
    person.types("Key", "k-1")
    person.types("Headers", "region: eu")
    person.types("Priority", "5")
    person.confirms("Publish")
    person.sees("Published to trail at offset 60 (synced).")
    (newest,) = broker.ask("GET", "/topics/trail/messages?offset=60")["messages"]
    said = [newest[name] for name in ("value", "key", "headers", "priority")]
    assert said == ['{"by":"hand"}', "k-1", {"region": "eu"}, 5]

    person.presses("Refresh")
    person.waits("document.querySelector('.messages .offset')?.textContent === '60'")
    person.presses("Older")
    person.waits("document.querySelector('.messages .offset').textContent === '10'")
    person.presses("Newer")
    person.waits("document.querySelector('.messages .offset').textContent === '60'")
    start = person.page.get_by_label("From").first
    start.select_option("oldest")
    person.waits("document.querySelector('.messages .offset').textContent === '0'")
    start.select_option("offset")
    person.types("Offset", "57")
    with person.page.expect_response(re.compile(r"/topics/trail$")):
        pass  # the page is drawn again, and what was typed stays
    person.presses("Refresh")
    person.waits("document.querySelector('.messages .offset').textContent === '57'")
    assert offsets_shown(person) == [57, 58, 59, 60]
    start.select_option("time")
    person.page.get_by_label("Time", exact=True).fill("2999-01-01T00:00:00")
    person.presses("Refresh")
    person.sees("This topic has no messages.")
    person.page.get_by_label("Time", exact=True).fill("2001-01-01T00:00:00")
    person.presses("Refresh")
    person.waits("document.querySelector('.messages .offset')?.textContent === '0'")

    person.goes("topics/payments")
    held = broker.ask("GET", "/topics/payments%2F2/messages?order=desc&limit=1")["messages"]
    person.page.get_by_label("Partition").select_option("2")
    person.waits(
        f"document.querySelector('.messages .offset')?.textContent === '{held[0]['offset']}'"
    )
    person.page.locator(".messages .row").first.click()
    person.presses("Copy")
    person.sees("Copied.")
    copied = json.loads(person.page.evaluate("navigator.clipboard.readText()"))
    assert copied == json.loads(held[0]["value"])
    with person.page.expect_download() as saved:
        person.presses("Save")
    assert Path(saved.value.path()).read_text() == held[0]["value"]


def test_a_live_view_can_be_held_and_goes_on(person: Person, broker: ConsoleBroker) -> None:
    person.goes("topics/orders.us?from=live", "main .state.live")
    broker.publish("orders.us", [{"text": "the first"}])
    person.sees("the first")
    person.presses("Pause")
    broker.publish("orders.us", [{"text": "the second"}])
    person.sees("2 received")
    assert person.page.get_by_text("the second").count() == 0
    person.presses("Resume")
    person.sees("the second")


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


def test_avro_is_decoded_by_the_version_of_the_schema_that_wrote_it(
    person: Person, broker: ConsoleBroker
) -> None:
    fields = [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]
    schema = {"type": "record", "name": "Seen", "fields": fields}
    with flintmq.connect_sync(broker.flint) as mq:
        mq.create_topic("seen")
        made = mq.add_schema("seen", schema)
        mq.publish("seen", {"at": 0}, format="avro", schema=made.text)
    person.goes("topics/seen")
    person.page.locator(".messages .row").click()
    person.sees('"at": "1970-01-01T00:00:00.000Z"')
