"""What the console asks of the HTTP API, and how its page is served."""

from __future__ import annotations

import gzip
import logging
import re

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.frontends.http.console.files import POLICY, console_files
from flintmq.frontends.http.console.sampler import SLOTS, Sampler, Trail, percentile
from flintmq.frontends.http.state import HttpState
from flintmq.observe.logs import event
from flintmq.observe.recent import RecentEvents
from flintmq.serde.codec import Codec

from .conftest import Caller, KeyGate

LETTERS = "/topics/orders/groups/g/dead-letters"


def client_of(broker: Broker) -> Client:
    return Client(broker, Codec(), auto_create=True, timeout=None)


async def dead(mq: Client, *values: bytes) -> None:
    for value in values:
        await mq.publish("orders", value, key="k", headers={"a": "1"})
    for message in await mq.poll("orders", "g", len(values)):
        await message.reject("broken")


# --- dead letters


async def test_an_edited_dead_letter_goes_back_once_and_the_second_person_is_told(
    call: Caller, broker: Broker
) -> None:
    mq = client_of(broker)
    await dead(mq, b"old", b"other")
    edit = {"text": "new", "headers": {"b": "2"}, "content_type": "text/plain"}
    assert await call.ok("POST", f"{LETTERS}/0/redrive", edit) == {"count": 1}
    again = await call.error("POST", f"{LETTERS}/0/redrive", edit)
    assert again == (409, "DeadLetterGone")

    (got,) = await mq.poll("orders", "g", 9)
    assert (got.value, got.key, got.headers, got.content_type) == (
        b"new", "k", {"b": "2"}, "text/plain",
    )  # fmt: skip
    assert [one.message.value for one in await mq.dead_letters("orders", "g")] == [b"other"]


async def test_an_edit_that_cannot_be_is_refused_and_nothing_is_lost(
    call: Caller, broker: Broker
) -> None:
    mq = client_of(broker)
    await dead(mq, b"old")
    await broker.configure_topic("orders", {"max_message_bytes": 10})
    for edit, status in (
        ({}, 400),
        ({"text": "a", "base64": "YQ=="}, 400),
        ({"base64": "!"}, 400),
        ({"text": "x" * 11}, 413),
    ):
        assert (await call.error("POST", f"{LETTERS}/0/redrive", edit))[0] == status
    assert len(await mq.dead_letters("orders", "g")) == 1


async def test_of_chosen_dead_letters_those_that_pass_a_filter_go_back(
    call: Caller, broker: Broker
) -> None:
    mq = client_of(broker)
    await dead(mq, b"a", b"b", b"a")
    asked = {"ids": ["0", "1"], "filter": 'value == b"a"'}
    assert await call.ok("POST", f"{LETTERS}/redrive", asked) == {"count": 1}
    assert [one.message.value for one in await mq.dead_letters("orders", "g")] == [b"b", b"a"]


async def test_dead_letters_are_listed_from_a_time_on(call: Caller, broker: Broker) -> None:
    mq = client_of(broker)
    await mq.create_topic("orders")
    assert (await call.ok("GET", f"{LETTERS}?time=5"))["dead_letters"] == []
    await dead(mq, b"old")
    (old,) = await mq.dead_letters("orders", "g")
    new = old
    while new.time <= old.time:  # until it is another millisecond
        await dead(mq, b"new")
        (*_, new) = await mq.dead_letters("orders", "g")
    found = await call.ok("GET", f"{LETTERS}?time={new.time}")
    assert [one["message"]["value"] for one in found["dead_letters"]] == ["new"]
    assert (await call.ok("GET", f"{LETTERS}?time={new.time + 60}"))["dead_letters"] == []


async def test_a_message_is_published_again_with_its_binary_key_and_headers(
    call: Caller, broker: Broker
) -> None:
    mq = client_of(broker)
    sent = {
        "text": "v",
        "key_base64": "/w==",
        "headers": {"a": "1"},
        "binary_headers": {"b": "/g=="},
    }
    await call.ok("POST", "/topics/orders/messages", sent)
    async with mq.reader("orders") as reader:
        got = await reader.read()
    assert (got.key, got.headers) == (b"\xff", {"a": "1", "b": b"\xfe"})
    for wrong in ({"key": "k"}, {"headers": {"b": "2"}}, {"binary_headers": {"b": "!"}}):
        refused = await call.error("POST", "/topics/orders/messages", {**sent, **wrong})
        assert refused == (400, "InvalidRequest")


# --- figures


async def test_figures_of_a_reader_say_how_fast_it_reads(
    call: Caller, broker: Broker, state: HttpState
) -> None:
    mq = client_of(broker)
    await mq.publish_batch("orders", [b"0", b"1", b"2"])
    async with mq.reader("orders", name="pipeline.rollup.totals") as reader:
        sampler = Sampler(state)
        await sampler.fresh(0)
        await reader.read_batch(2)
        await sampler.fresh(0)
        (row,) = sampler.groups
        assert (row.kind, row.lag, row.members) == ("cursor", 1, 1)
        assert row.delivered is not None
        assert row.delivered > 0


async def test_figures_have_every_topic_and_group_that_the_key_may_see(
    call: Caller, broker: Broker, gate: KeyGate
) -> None:
    mq = client_of(broker)
    await dead(mq, b"x")
    await mq.create_topic("secret")
    await mq.create_topic("rows", partitions=3)
    found = await call.ok("GET", "/figures")
    topics = {row[0]: row for row in found["topics"]}
    assert set(topics) == {"orders", "secret", "rows", "dead.orders.g"}
    assert (topics["orders"][1], topics["orders"][6], topics["rows"][8]) == (1, 1, 3)
    assert [(row[0], row[1], row[10]) for row in found["groups"]] == [("orders", "g", 1)]

    gate.add("some", ("orders", "publish"))
    found = await call.ok("GET", "/figures", key="some")
    assert ([row[0] for row in found["topics"]], found["groups"]) == (["orders"], [])
    assert (await call.ok("GET", "/me", key="some"))["grants"] == {"orders": ["publish"]}


async def test_a_sample_sums_up_what_there_is(call: Caller, broker: Broker) -> None:
    await dead(client_of(broker), b"x", b"y")
    (sample,) = (await call.ok("GET", "/samples"))["samples"]
    assert (sample["dead_letters"], sample["lag"], sample["topics"]) == (2, 0, 2)


def test_a_trail_moves_on_with_time_and_takes_nothing_while_nothing_is_published() -> None:
    trail = Trail(0, 0)
    assert trail.add(5, 0) == []
    assert trail.add(5, 3)[-1] == 3
    assert trail.add(7, 1)[-3:] == [3, 0, 1]
    assert trail.add(7 + SLOTS, 0) == []


def test_a_percentile_is_the_bound_below_which_they_are() -> None:
    assert percentile([99, 1, 0], [1.0, 2.0]) == 1.0
    assert percentile([90, 10, 0], [1.0, 2.0]) == 2.0
    assert percentile([0, 0, 5], [1.0, 2.0]) == 2.0
    assert percentile([0, 0, 0], [1.0, 2.0]) is None


async def test_a_preview_of_a_reset_says_what_it_would_do_and_does_nothing(
    call: Caller, broker: Broker
) -> None:
    mq = client_of(broker)
    for value in (b"0", b"1", b"2", b"3"):
        await mq.publish("orders", value)
    first, second = await mq.poll("orders", "g", 2)
    await mq.ack([first])
    path = "/topics/orders/groups/g/reset/preview"
    back = await call.ok("POST", path, {"to": "earliest"})
    assert (back["again"], back["skipped"], back["in_flight"]) == (1, 0, 1)
    ahead = await call.ok("POST", path, {"to": "latest"})
    assert (ahead["again"], ahead["skipped"]) == (0, 3)
    assert ahead["partitions"] == [
        {"partition": "0", "position": "1", "to": "4", "lag": 3, "lag_after": 0}
    ]
    assert (await mq.group_stats("orders", "g")).lag == 3
    await mq.ack([second])


# --- events


def test_recent_events_are_bounded_and_go_on_behind_a_number() -> None:
    recent = RecentEvents(events_max=3)
    log = logging.Logger("test")
    log.addHandler(recent)
    for number in range(5):
        event(log, logging.INFO, "counted", f"number {number}", number=number, data=b"secret")
    event(log, logging.DEBUG, "too_fine", "not kept")
    assert [one.message for one in recent.after(0, 9)] == ["number 2", "number 3", "number 4"]
    assert [one.number for one in recent.after(4, 9)] == [5]
    assert recent.after(0, 1)[0].fields == {"number": "4", "data": "(6 bytes)"}


# --- the page


async def test_the_page_is_kept_by_browsers_under_a_name_that_changes_with_it(
    call: Caller,
) -> None:
    page = await call("GET", "/", key=None)
    assert page.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    (script,) = re.findall(r'src="(console/[^"]+)"', page.text)
    part = await call("GET", f"/{script}", key=None)
    assert "immutable" in part.headers["cache-control"]
    old = await call("GET", "/console/old/main.js", key=None)
    assert (old.content, old.headers["cache-control"]) == (part.content, "no-cache")
    same = await call("GET", "/", key=None, headers={"if-none-match": page.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    lost = await call("GET", "/console/x/nothing.js", key=None)
    assert lost.status_code == 404


def test_the_page_is_small_and_asks_nobody_else() -> None:
    files = console_files().by_path
    assert sum(len(file.packed) for file in files.values()) < 200 * 1024
    for path, file in files.items():
        assert gzip.decompress(file.packed) == file.data
        if not path.startswith("vendor/"):
            assert b"<script>" not in file.data
            assert not re.search(rb"""(src|href|from|import)\s*=?\s*["']https?://""", file.data)
