"""Connections, webhooks, keys and the nodes of a cluster in the console: every action."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import flintmq

from .person import NARROW, WIDE, Person, check_view
from .scene import ConsoleBroker, console_broker, console_cluster, wait_for_leader

pytestmark = pytest.mark.slow


def test_connections_and_webhooks_are_listed_and_ended(
    person: Person, broker: ConsoleBroker
) -> None:
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
    person.presses("Test", "tbody tr:has-text('127.0.0.1:9')")
    person.sees("The target answered:")
    person.presses("Pause", "tbody")
    person.sees("The webhook is paused.")
    person.presses("Resume", "tbody")
    person.sees("The webhook was resumed.")
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
        person = Person(browser, first.url)
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
