"""Groups and dead letters in the console: every action."""

from __future__ import annotations

from typing import Any

import pytest

from .person import Person
from .scene import ConsoleBroker

pytestmark = pytest.mark.slow


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


def test_a_group_is_reset_to_an_offset_a_time_and_the_end(
    person: Person, broker: ConsoleBroker
) -> None:
    broker.publish("resets", [{"text": str(n)} for n in range(9)])
    path = "/topics/resets/groups/g"
    broker.ask("POST", f"{path}/poll", {"max": 1, "wait": 5})
    person.goes("topics/resets/groups/g")
    for choice, label, text, lag in (
        ("an offset", "Offset", "7", 2),
        ("a time", "Time", "2001-01-01T00:00:00", 9),
        ("the end (skip all messages)", "", "", 0),
    ):
        person.presses("Reset")
        person.page.get_by_label(choice).check()
        if label:
            person.page.locator("dialog").get_by_label(label, exact=True).fill(text)
        person.page.wait_for_selector(f".preview-box td:last-child:text-is('{lag}')")
        person.confirms("Reset")
        person.page.wait_for_selector("dialog", state="detached")
        assert broker.ask("GET", path)["stats"]["lag"] == lag


def letters_of(broker: ConsoleBroker, topic: str, reasons: list[str]) -> str:
    """A topic with dead letters; where they are in the page."""
    broker.publish(topic, [{"json": {"n": n}} for n in range(len(reasons))])
    broker.kill_letters(topic, "g", reasons)
    return f"topics/{topic}/groups/g/dead-letters"


def test_a_dead_letter_is_edited_and_of_two_people_one_wins_and_the_other_is_told(
    browser: Any, broker: ConsoleBroker, look: str
) -> None:
    where = letters_of(broker, "bills", ["no address"])
    people = [Person(browser, broker.url, look) for _ in range(2)]
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
    people[1].sees("someone else has redriven or discarded it")

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


def test_one_dead_letter_goes_back_those_of_a_time_are_shown_and_all_are_discarded(
    person: Person, broker: ConsoleBroker
) -> None:
    where = letters_of(broker, "faxes", ["busy"] * 3)
    left = "/topics/faxes/groups/g"
    person.goes(where)
    person.page.locator(".letters .row").first.click()
    person.presses("Redrive", ".letter")
    person.sees("The dead letter went back to its group.")
    assert broker.ask("GET", left)["stats"]["dead_letters"] == 2
    person.page.get_by_label("Died after").fill("2999-01-01T00:00:00")
    person.sees("No dead letters match.")
    person.page.get_by_label("Died after").fill("2001-01-01T00:00:00")
    person.waits("document.querySelectorAll('.letters li').length === 2")
    broker.kill_letters("faxes", "g", ["later"])
    person.presses("Reload")
    person.waits("document.querySelectorAll('.letters li').length === 3")
    person.page.get_by_label("Select all 3 shown").check()
    person.sees("Discard selected (3)")
    person.presses("Discard all…")
    person.types("Type g to confirm", "g")
    person.confirms("Discard all")
    person.sees("3 dead letters discarded.")
    person.sees("No dead letters match.")
    assert broker.ask("GET", left)["stats"]["dead_letters"] == 0


def test_a_redrive_of_many_can_be_stopped(person: Person, broker: ConsoleBroker) -> None:
    broker.publish("piles", [{"text": str(n)} for n in range(250)])
    path = "/topics/piles/groups/g"
    taken = broker.ask("POST", f"{path}/poll", {"max": 250, "wait": 5})["messages"]
    broker.ask("POST", f"{path}/reject", {"leases": [one["lease"] for one in taken]})
    person.goes("topics/piles/groups/g/dead-letters", ".letters li")

    def hold(route: Any) -> None:
        person.presses("Stop", "dialog")
        route.continue_()

    person.page.route("**/redrive", hold)
    person.presses("Redrive all…")
    person.confirms("Redrive all")
    person.page.wait_for_selector("dialog >> text=Put back: 200 of 250")
    person.confirms("Close")
    assert broker.ask("GET", path)["stats"]["dead_letters"] == 50
