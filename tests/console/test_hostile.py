"""What others wrote is shown as text by the console: nothing of it runs, nothing hangs."""

from __future__ import annotations

import json

import pytest

import flintmq

from .person import Person
from .scene import HOSTILE, ConsoleBroker

pytestmark = pytest.mark.slow


def test_what_others_wrote_is_text_and_a_large_value_hangs_nothing(
    person: Person, broker: ConsoleBroker
) -> None:
    person.goes("topics/emails")
    person.page.locator(".messages .row").click()
    person.sees("⟨U+202E⟩gnp.exe⟨U+0007⟩")
    assert person.page.locator("main img, main script").count() == 0
    large = "<b>" * (10 * 1024 * 1024 // 3)
    with flintmq.connect_sync(broker.flint) as mq:
        mq.publish("large", large.encode(), headers={"x": HOSTILE}, key=HOSTILE)
    person.goes("topics/large")
    person.page.locator(".messages .row").click()
    person.sees("the first 2 KiB of 10 MiB")
    person.presses("Show up to 1 MiB")
    person.sees("the first 1 MiB of 10 MiB")
    assert person.page.locator("main b:has-text('<b>')").count() == 0


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
