"""The checker of chaos runs: a run in which all went well passes, and each rule sees its break."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from .checker import check, judge, rules
from .checker.content import checksum_of, name_of, value_of
from .checker.history import SECOND, Event, History
from .checker.rules import RULES
from .story import Story

SIZE = 8


class Tale:
    """A run, told event by event; each is a second later."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._ops = 0

    def tell(self, event: str, worker: str = "w", **facts: Any) -> Event:
        told = {"t": (len(self.events) + 1) * SECOND, "w": worker, "e": event, **facts}
        self.events.append(told)
        return told

    def call(self, event: str, outcome: str, answer: Event | None = None, **facts: Any) -> None:
        self._ops += 1
        self.tell(event, op=f"o{self._ops}", **facts)
        if outcome == "failed":
            self.tell("failed", op=f"o{self._ops}", **(answer or {}))
        elif outcome:
            self.tell(outcome, op=f"o{self._ops}", **(answer or {}))

    def publish(
        self, topic: str, names: list[str], offset: int | None, how: str = "batch", **facts: Any
    ) -> None:
        answer = {"offset": offset, "count": len(names), "duplicate": False}
        told: Event = {"topic": topic, "names": names, "size": SIZE, "how": how, **facts}
        self.call("publish", "published", answer, **told)

    def deliver(
        self, topic: str, group: str, offset: int, name: str, token: int, count: int = 1,
        *, key: str | None = None, member: str = "w/m/poll", lease: float = 1.0,
    ) -> None:  # fmt: skip
        asked = (len(self.events) + 1) * SECOND
        row = [offset, name, checksum_of(name, SIZE), token, count, key]
        facts: Event = {"member": member, "lease": lease, "asked": asked, "rows": [row]}
        self.tell("deliver", topic=topic, group=group, **facts)

    def settle(
        self, topic: str, group: str, offset: int, token: int, fate: str = "ack", delay: float = 0
    ) -> None:
        facts: Event = {"fate": fate, "delay": delay, "rows": [[offset, token]]}
        self.call("settle", "settled", {"lost": []}, topic=topic, group=group, **facts)

    def final(self, topics: dict[str, list[list[Any]]], groups: dict[str, list[str]]) -> None:
        for look in range(2):
            for topic, rows in topics.items():
                first = rows[0][0] if rows else 0
                next_offset = rows[-1][0] + 1 if rows else 0
                facts: Event = {"look": look, "topic": topic}
                self.tell("final_topic", first=first, next=next_offset, **facts)
                self.tell("final_rows", rows=deepcopy(rows), **facts)
            for topic, letters in groups.items():
                told = [[0, name, checksum_of(name, SIZE)] for name in letters]
                facts = {"look": look, "topic": topic, "group": "g"}
                self.tell("final_group", lag=0, letters=told, **facts)

    def find(self, event: str, **facts: Any) -> Event:
        """The first such event."""
        return next(
            told
            for told in self.events
            if told["e"] == event and all(told.get(name) == fact for name, fact in facts.items())
        )

    def outcome(self, **facts: Any) -> Event:
        """What came of the first such call."""
        op = next(
            told["op"]
            for told in self.events
            if "op" in told and all(told.get(name) == fact for name, fact in facts.items())
        )
        return [told for told in self.events if told.get("op") == op][1]

    def rows(self, topic: str, look: int = 1) -> list[list[Any]]:
        rows: list[list[Any]] = self.find("final_rows", look=look, topic=topic)["rows"]
        return rows


def row(offset: int, name: str, key: str | None = None, priority: int = 0) -> list[Any]:
    return [offset, name, checksum_of(name, SIZE), key, priority]


def good_run() -> Tale:
    """A bit of everything, and nothing wrong with it."""
    tale = Tale()
    tale.publish("events", ["e0", "e1"], 0)
    tale.publish("events", ["e2"], None, how="publisher")
    tale.publish("events", ["e3"], 3, how="single")
    nothing_done = {"error": "Disconnected"}
    facts: Event = {"topic": "events", "names": ["no"], "size": SIZE, "how": "single"}
    tale.call("publish", "failed", nothing_done, **facts)
    tale.call("publish", "failed", {"error": "OutcomeUnknown"}, **(facts | {"names": ["perhaps"]}))
    for _ in range(2):
        tale.publish("once", ["o0", "o1"], 0, how="once", producer="p", sequence=0)
    tale.publish("brief", ["b0"], 0, how="single", ttl=2.0)
    tale.publish("brief", ["b1"], 1, how="single", ttl=3600.0)
    tale.publish("ring", ["r0"], 0)

    batches: Event = {"ledger-a": ["s0", "s1"], "ledger-b": ["s2"]}
    facts = {"writer": "s", "number": 1}
    tale.call("stage", "staged", part="one", size=SIZE, batches=batches, **facts)
    receipts = [["ledger-a", 0, 2, False], ["ledger-b", 0, 1, False]]
    tale.call("commit", "committed", {"receipts": receipts}, parts=["one"], **facts)
    batches = {"ledger-a": ["s3"]}
    facts = {"writer": "s", "number": 2}
    tale.call("stage", "staged", part="one", size=SIZE, batches=batches, **facts)
    tale.call("abort", "aborted", parts=[], **facts)
    facts = {"writer": "s", "number": 3}
    batches = {"ledger-a": ["s4"], "ledger-b": ["s5"]}
    tale.call("stage", "staged", part="one", size=SIZE, batches=batches, **facts)
    tale.call("commit", "failed", {"error": "OutcomeUnknown"}, parts=["one"], **facts)

    rows = [row(at, f"e{at}") for at in range(4)]
    tale.tell("read", reader="l1", topic="events", name=None, rows=rows)
    named = {"reader": "l2", "topic": "events", "name": "n"}
    tale.tell("read", rows=rows, **named)
    tale.tell("keep", **named)
    tale.tell("kept", offset=4, **named)
    tale.tell("read", reader="l3", topic="brief", name=None, rows=[row(1, "b1")])
    tale.tell("feed", feed="f", rows=[["events", *one] for one in rows])

    tale.publish("jobs", ["j0"], 0)
    tale.publish("jobs", ["j1"], 1, priorities=[7], delay=2.0)
    tale.publish("jobs", ["j2"], 2, delay=60.0)
    cancel = {"verb": "cancel", "topic": "jobs", "names": ["j2"]}
    tale.call("change", "changed", {"result": 1}, **cancel)
    tale.deliver("jobs", "g", 0, "j0", token=1)
    tale.settle("jobs", "g", 0, 1, "nack", delay=1.0)
    tale.deliver("jobs", "g", 0, "j0", token=2, count=2)
    tale.settle("jobs", "g", 0, 2)
    tale.deliver("jobs", "g", 1, "j1", token=3)
    tale.settle("jobs", "g", 1, 3, "reject")
    tale.publish("keyed", ["k0"], 0, keys=["k"])
    tale.publish("keyed", ["k1"], 1, keys=["k"])
    for at in range(2):
        tale.deliver("keyed", "g", at, f"k{at}", token=10 + at, key="k")
        tale.settle("keyed", "g", at, 10 + at)

    tale.publish("churn.0", ["c0"], 0)
    tale.call("change", "changed", {"result": 1}, verb="purge", topic="churn.0")
    tale.publish("churn.0", ["c1"], 1)
    tale.tell("stats", topic="ring", first=0, next=1)
    tale.final(
        {
            "events": rows,
            "once": [row(0, "o0"), row(1, "o1")],
            "brief": [row(1, "b1")],
            "ring": [row(0, "r0")],
            "ledger-a": [row(0, "s0"), row(1, "s1")],
            "ledger-b": [row(0, "s2")],
            "jobs": [row(0, "j0"), row(1, "j1", None, 7), row(2, "j2")],
            "keyed": [row(0, "k0", "k"), row(1, "k1", "k")],
            "dead.jobs.g": [row(0, "j1", None, 7)],
            "churn.0": [row(1, "c1")],
        },
        {"jobs": ["j1"], "keyed": []},
    )
    return tale


def test_a_run_in_which_all_went_well_passes_and_every_rule_has_judged() -> None:
    verdict = judge(History(good_run().events))

    assert [(one.name, one.failures) for one in verdict.checks if one.failures] == []
    assert [one.name for one in verdict.checks if not one.judged] == []


def test_verbs_are_counted() -> None:
    verbs = judge(History(good_run().events)).verbs

    assert verbs["publish (single)"] == {"done": 3, "failed": 2}
    assert verbs["commit of staged writes"] == {"done": 1, "failed": 1}
    assert verbs["settle (reject)"]["done"] == 1
    assert verbs["live"]["done"] == 4


# --- one break each


def lose_an_acknowledged_message(tale: Tale) -> None:
    tale.rows("events").pop()


def lose_one_that_a_publisher_sent(tale: Tale) -> None:
    tale.rows("events").pop(2)


def put_another_in_its_place(tale: Tale) -> None:
    tale.rows("events")[0][1:3] = ["e3", checksum_of("e3", SIZE)]


def show_a_message_that_nobody_published(tale: Tale) -> None:
    tale.find("read", reader="l1")["rows"][0][1] = "e99"


def alter_a_byte(tale: Tale) -> None:
    tale.find("read", reader="l1")["rows"][0][2] ^= 1


def show_it_in_another_topic(tale: Tale) -> None:
    tale.find("feed")["rows"][0][0] = "once"


def lose_its_key(tale: Tale) -> None:
    tale.rows("keyed")[0][3] = None


def lose_its_priority(tale: Tale) -> None:
    tale.rows("jobs")[1][4] = 0


def show_another_message_at_the_offset(tale: Tale) -> None:
    tale.find("read", reader="l1")["rows"][1][1:3] = ["e3", checksum_of("e3", SIZE)]


def store_it_twice(tale: Tale) -> None:
    tale.rows("events").append(row(4, "e0"))


def store_what_was_refused(tale: Tale) -> None:
    tale.rows("events").append(row(4, "no"))


def give_a_repeat_another_receipt(tale: Tale) -> None:
    published = [told for told in tale.events if told["e"] == "published"]
    next(told for told in reversed(published) if told["op"] == "o7")["offset"] = 2


def store_a_repeat_again(tale: Tale) -> None:
    tale.rows("once").append(row(2, "o0"))


def store_half_a_batch(tale: Tale) -> None:
    tale.rows("once").pop()


def append_before_what_was_known(tale: Tale) -> None:
    tale.outcome(e="publish", names=["e3"])["offset"] = 0


def store_a_part_of_a_commit(tale: Tale) -> None:
    tale.rows("ledger-b").pop()


def store_a_part_of_a_commit_nobody_heard_of(tale: Tale) -> None:
    tale.rows("ledger-a").append(row(2, "s4"))


def store_what_was_aborted(tale: Tale) -> None:
    tale.rows("ledger-a").append(row(2, "s3"))


def store_a_commit_twice(tale: Tale) -> None:
    tale.rows("ledger-b").append(row(1, "s2"))


def skip_a_row(tale: Tale) -> None:
    tale.find("read", reader="l1")["rows"].pop(1)


def go_back(tale: Tale) -> None:
    tale.find("read", reader="l1")["rows"].reverse()


def lose_a_row_of_a_dead_reader(tale: Tale) -> None:
    rows = tale.find("read", reader="l2")["rows"]
    tale.find("read", reader="l2")["rows"] = rows[:3]


def commit_nothing(tale: Tale) -> None:
    tale.events.remove(tale.find("keep"))


def show_it_twice_in_a_feed(tale: Tale) -> None:
    rows = tale.find("feed")["rows"]
    rows.append(rows[0])


def lose_it_in_the_last_kill(tale: Tale) -> None:
    tale.rows("brief").pop()


def deliver_what_was_acked(tale: Tale) -> None:
    tale.deliver("jobs", "g", 0, "j0", token=9, count=3)


def deliver_what_was_rejected(tale: Tale) -> None:
    tale.deliver("jobs", "g", 1, "j1", token=9, count=2)


def hand_out_what_another_settled(tale: Tale) -> None:
    tale.deliver("jobs", "g", 0, "j0", token=1, member="other/m/sub")


def deliver_to_two(tale: Tale) -> None:
    tale.publish("jobs", ["j9"], 9)
    tale.deliver("jobs", "g", 9, "j9", token=20, lease=30)
    tale.deliver("jobs", "g", 9, "j9", token=21, count=2, member="other/m/sub")


def count_no_further(tale: Tale) -> None:
    tale.find("deliver", topic="jobs")["rows"][0][4] = 2


def deliver_twice_under_one_token(tale: Tale) -> None:
    told = [one for one in tale.events if one["e"] == "deliver" and one["topic"] == "jobs"]
    told[1]["rows"][0][3] = 1


def leave_one_behind(tale: Tale) -> None:
    tale.find("final_group", look=1, topic="keyed")["lag"] = 1


def forget_one(tale: Tale) -> None:
    tale.publish("jobs", ["j9"], 3)
    tale.rows("jobs").append(row(3, "j9"))


def deliver_before_the_delay(tale: Tale) -> None:
    tale.find("publish", names=["j1"])["delay"] = 100.0


def deliver_before_the_nack_is_due(tale: Tale) -> None:
    tale.find("settle", fate="nack")["delay"] = 100.0


def deliver_a_key_backwards(tale: Tale) -> None:
    tale.deliver("keyed", "g", 0, "k0", token=99, count=2, key="k")


def deliver_two_of_a_key(tale: Tale) -> None:
    tale.publish("keyed", ["k2", "k3"], 2, keys=["k", "k"])
    tale.deliver("keyed", "g", 2, "k2", token=20, key="k", lease=30)
    tale.deliver("keyed", "g", 3, "k3", token=21, key="k")


def bury_nothing(tale: Tale) -> None:
    tale.rows("dead.jobs.g").pop()


def bury_twice(tale: Tale) -> None:
    tale.rows("dead.jobs.g").append(row(1, "j1", None, 7))


def put_back_and_keep(tale: Tale) -> None:
    tale.rows("jobs").append(row(3, "j1", None, 7))


def deliver_what_was_cancelled(tale: Tale) -> None:
    tale.deliver("jobs", "g", 2, "j2", token=30)


def bring_back_what_was_purged(tale: Tale) -> None:
    tale.rows("churn.0").insert(0, row(0, "c0"))


def purge_what_came_later(tale: Tale) -> None:
    tale.rows("churn.0").clear()


def give_back_what_retention_took(tale: Tale) -> None:
    tale.tell("stats", topic="ring", first=5, next=9)
    tale.tell("stats", topic="ring", first=3, next=9)


def keep_too_little(tale: Tale) -> None:
    tale.find("final_topic", look=1, topic="ring")["first"] = 1


def show_what_has_expired(tale: Tale) -> None:
    tale.tell("read", reader="l9", topic="brief", name=None, rows=[row(0, "b0")])


def tell_of_damage_that_nobody_did(tale: Tale) -> None:
    tale.tell("final_damage", look=1, topic="events", first=1, end=2)


BREAKS: list[tuple[rules.Rule, Callable[[Tale], None]]] = [
    (rules.receipts, lose_an_acknowledged_message),
    (rules.receipts, lose_one_that_a_publisher_sent),
    (rules.receipts, put_another_in_its_place),
    (rules.invented, show_a_message_that_nobody_published),
    (rules.invented, alter_a_byte),
    (rules.invented, show_it_in_another_topic),
    (rules.invented, lose_its_key),
    (rules.invented, lose_its_priority),
    (rules.one_place, show_another_message_at_the_offset),
    (rules.stored_once, store_it_twice),
    (rules.refused, store_what_was_refused),
    (rules.idempotent, give_a_repeat_another_receipt),
    (rules.idempotent, store_a_repeat_again),
    (rules.whole_batches, store_half_a_batch),
    (rules.order, append_before_what_was_known),
    (rules.staged_whole, store_a_part_of_a_commit),
    (rules.staged_whole, store_a_part_of_a_commit_nobody_heard_of),
    (rules.staged_whole, store_what_was_aborted),
    (rules.staged_whole, store_a_commit_twice),
    (rules.readers, skip_a_row),
    (rules.readers, go_back),
    (rules.named_readers, lose_a_row_of_a_dead_reader),
    (rules.named_readers, commit_nothing),
    (rules.feeds, show_it_twice_in_a_feed),
    (rules.looks_agree, lose_it_in_the_last_kill),
    (rules.settled_again, deliver_what_was_acked),
    (rules.settled_again, deliver_what_was_rejected),
    (rules.stale, hand_out_what_another_settled),
    (rules.one_holder, deliver_to_two),
    (rules.tokens, count_no_further),
    (rules.tokens, deliver_twice_under_one_token),
    (rules.fates, leave_one_behind),
    (rules.fates, forget_one),
    (rules.too_early, deliver_before_the_delay),
    (rules.too_early, deliver_before_the_nack_is_due),
    (rules.key_order, deliver_a_key_backwards),
    (rules.one_of_a_key, deliver_two_of_a_key),
    (rules.dead_letters, bury_nothing),
    (rules.dead_letters, bury_twice),
    (rules.dead_letters, put_back_and_keep),
    (rules.cancelled, deliver_what_was_cancelled),
    (rules.never_back, bring_back_what_was_purged),
    (rules.never_back, purge_what_came_later),
    (rules.retention, give_back_what_retention_took),
    (rules.retention, keep_too_little),
    (rules.damage, tell_of_damage_that_nobody_did),
    (rules.expired, show_what_has_expired),
]


@pytest.mark.parametrize(("rule", "spoil"), BREAKS, ids=[spoil.__name__ for _, spoil in BREAKS])
def test_a_rule_sees_its_break(rule: rules.Rule, spoil: Callable[[Tale], None]) -> None:
    tale = good_run()

    spoil(tale)

    assert rule(History(tale.events)).failures


def test_every_rule_has_a_break_that_it_sees() -> None:
    assert {rule for rule, _ in BREAKS} == set(RULES)


# --- what is no break


def test_a_lease_that_a_fault_has_taken_may_go_to_another() -> None:
    tale = good_run()
    tale.publish("jobs", ["j9"], 9)
    tale.deliver("jobs", "g", 9, "j9", token=20, lease=30)
    tale.tell("fault", kind="kill", phase="begin", targets=["*"])
    tale.tell("fault", kind="kill", phase="end", targets=["*"])
    tale.deliver("jobs", "g", 9, "j9", token=21, count=2, member="other/m/sub")

    assert rules.one_holder(History(tale.events)).failures == []


@pytest.mark.parametrize("member", ["w/m/poll", None])
def test_what_a_member_or_its_process_gave_back_may_go_to_another(member: str | None) -> None:
    tale = good_run()
    deliver_to_two(tale)
    *others, second = tale.events
    tale.events = others
    tale.tell("closing", member=member)
    tale.events.append(second | {"t": second["t"] + SECOND})

    assert rules.one_holder(History(tale.events)).failures == []


def test_what_was_damaged_may_be_gone() -> None:
    tale = good_run()
    tale.tell("fault", kind="damage", phase="begin", targets=["*"])
    tale.tell("fault", kind="damage", phase="end", targets=["*"])
    for look in range(2):
        tale.rows("once", look).pop(1)
        tale.tell("final_damage", look=look, topic="once", first=1, end=2)

    verdict = judge(History(tale.events))

    assert [one.name for one in verdict.checks if one.failures] == []


def test_a_dead_letter_that_is_damaged_and_was_seen_counts_as_one() -> None:
    tale = good_run()
    for look in range(2):
        tale.rows("jobs", look).append(row(3, "j1", None, 7))
        tale.rows("dead.jobs.g", look).clear()
        tale.tell("final_damage", look=look, topic="dead.jobs.g", first=0, end=1)
    assert rules.stored_once(History(tale.events)).failures == ["j1 is stored 2 times"]

    tale.tell("feed", feed="g", rows=[["dead.jobs.g", *row(0, "j1", None, 7)]])

    assert rules.stored_once(History(tale.events)).failures == []


def test_a_fault_concerns_those_it_hit() -> None:
    tale = Tale()
    tale.tell("fault", kind="client-kill", phase="begin", targets=[])
    tale.tell("fault", kind="client-kill", phase="end", targets=[])
    tale.tell("fault", kind="client-kill", phase="hit", targets=["queue0.1"])
    history = History(tale.events)

    assert not history.is_undisturbed(0, 9 * SECOND, "queue0.1")
    assert history.is_undisturbed(0, 9 * SECOND, "queue1.1")


def test_what_a_killed_process_did_not_finish_to_tell_is_left_out(tmp_path: Path) -> None:
    story = Story(tmp_path / "w", "w")
    story.tell("publish", op="o", topic="events", names=["a"], size=SIZE, how="single")
    story.close()
    with (tmp_path / "w").open("a") as file:
        file.write(json.dumps({"t": 1})[:-2])

    assert check(tmp_path).verbs == {"publish (single)": {"done": 0, "failed": 1}}


def test_a_message_is_known_by_its_name_and_by_every_byte() -> None:
    value = value_of("publish0.1-17", 1500)

    assert name_of(value) == "publish0.1-17"
    assert len(value) == len("publish0.1-17 ") + 1500
    assert value != value_of("publish0.1-18", 1500)


def test_the_checker_shares_no_code_with_the_broker() -> None:
    for path in (Path(__file__).parent / "checker").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, f"{path.name} imports from outside the checker"
                names = [node.module or ""] if not node.level else []
            assert not any(name.startswith(("flintmq", "tests")) for name in names), path.name
