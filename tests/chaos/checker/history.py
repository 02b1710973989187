"""The stories of all processes as one history: what was asked, what came of it, what was seen."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]
SECOND = 1_000_000_000
EVERYBODY = "*"
CHURN, DEAD = "churn.", "dead."
"""How the names of topics begin that come and go, and of those for dead letters."""
POWER_FAULTS = ("power-cut", "failing-sync")
RECOVERY_NS = SECOND
"""How long after a fault its effects may be felt."""


@dataclass(slots=True)
class Call:
    """Something that was asked for."""

    op: str
    worker: str
    facts: Event
    begun: int
    ended: int | None = None
    """When it was done; None if it failed, or if nobody heard."""
    outcome: Event | None = None
    error: str = ""

    @property
    def is_done(self) -> bool:
        return self.ended is not None

    @property
    def topic(self) -> str:
        return str(self.facts["topic"])


@dataclass(slots=True)
class Written:
    """A message as it was to be published: the first call that named it."""

    name: str
    topic: str
    size: int
    key: Any
    priority: int
    ttl: float | None
    delay: float | None
    begun: int
    ended: int | None = None
    """When the first receipt for it came."""
    calls: list[Call] = field(default_factory=list)


@dataclass(slots=True)
class Seen:
    """A row that somebody was shown."""

    at: int
    worker: str
    how: str
    topic: str
    offset: int | None
    name: str
    checksum: int
    key: Any = None
    priority: int | None = None


@dataclass(slots=True)
class Delivery:
    at: int
    worker: str
    member: str
    topic: str
    group: str
    lease_ns: int
    asked: int | None
    """When a poll asked for it; None where leases are renewed."""
    offset: int
    name: str
    token: int
    count: int
    key: Any


@dataclass(slots=True)
class Settle:
    worker: str
    begun: int
    fate: str
    token: int
    delay_ns: int
    ended: int | None
    is_lost: bool

    @property
    def is_done(self) -> bool:
        return self.ended is not None and not self.is_lost


@dataclass(slots=True)
class Fault:
    kind: str
    begun: int
    ended: int
    targets: set[str]


@dataclass
class FinalTopic:
    first: int
    next: int
    rows: dict[int, Seen] = field(default_factory=dict)
    damaged: list[tuple[int, int]] = field(default_factory=list)

    def is_damaged(self, offset: int) -> bool:
        return any(first <= offset < end for first, end in self.damaged)


@dataclass
class FinalGroup:
    lag: int
    letters: list[str]
    """Names of messages that wait among the dead letters."""


@dataclass
class Staged:
    """One number of one writer."""

    parts: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Names by part and topic."""
    commits: list[Call] = field(default_factory=list)
    aborts: list[Call] = field(default_factory=list)


MessageId = tuple[str, str, int]
"""Topic, group, offset."""

CALLS = ("publish", "stage", "commit", "abort", "settle", "change")
OUTCOMES = ("published", "staged", "committed", "aborted", "settled", "changed")


class History:
    def __init__(self, events: Iterable[Event]) -> None:
        self.calls: dict[str, Call] = {}
        self.written: dict[str, Written] = {}
        self.staged: dict[tuple[str, int], Staged] = defaultdict(Staged)
        self.seen: list[Seen] = []
        self.reads: dict[str, list[Seen]] = defaultdict(list)
        """By the life of a reader."""
        self.named: dict[str, tuple[str, str]] = {}
        """Lives of readers by name: the topic and the name."""
        self.keeps: dict[str, list[int]] = defaultdict(list)
        """When each life of a reader began to commit."""
        self.feeds: dict[str, list[Seen]] = defaultdict(list)
        self.deliveries: dict[MessageId, list[Delivery]] = defaultdict(list)
        self.settles: dict[MessageId, list[Settle]] = defaultdict(list)
        self._closings: dict[str, list[int]] = defaultdict(list)
        """When members, or all of a worker, began to close and gave back what they had."""
        self.extents: dict[str, list[tuple[int, str, int, int]]] = defaultdict(list)
        """By topic: when, who, first offset, next offset."""
        self.looks: dict[int, dict[str, FinalTopic]] = defaultdict(dict)
        self.groups: dict[int, dict[tuple[str, str], FinalGroup]] = defaultdict(dict)
        self.faults: list[Fault] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        for event in sorted(events, key=lambda event: int(event["t"])):
            self._take(event)
        for call in self.calls.values():
            self._account(call)

    # --- taking in

    def _take(self, event: Event) -> None:
        kind = event["e"]
        if kind in CALLS:
            self.calls[event["op"]] = Call(event["op"], event["w"], event, event["t"])
        elif kind in OUTCOMES:
            call = self.calls[event["op"]]
            if call.ended is None:
                call.ended, call.outcome = event["t"], event
        elif kind == "failed":
            self.calls[event["op"]].error = event["error"]
        else:
            taker = getattr(self, f"_take_{kind}", None)
            if taker is not None:
                taker(event)

    def _take_read(self, event: Event) -> None:
        rows = [self._row(event, "read", event["topic"], row) for row in event["rows"]]
        self.reads[event["reader"]] += rows
        if event["name"]:
            self.named[event["reader"]] = event["topic"], event["name"]
        self._counts["read by name" if event["name"] else "read", "done"] += len(rows)

    def _take_keep(self, event: Event) -> None:
        self.keeps[event["reader"]].append(event["t"])

    def _take_kept(self, event: Event) -> None:
        self._counts["commit of a reader", "done"] += 1

    def _take_life_ends(self, event: Event) -> None:
        self._counts["life of a consumer", "failed"] += 1

    def _take_feed(self, event: Event) -> None:
        rows = [self._row(event, "feed", row[0], row[1:]) for row in event["rows"]]
        self.feeds[event["feed"]] += rows
        self._counts["live", "done"] += len(rows)

    def _take_deliver(self, event: Event) -> None:
        topic, group = event["topic"], event["group"]
        for offset, name, checksum, token, count, key in event["rows"]:
            self.seen.append(
                Seen(event["t"], event["w"], "delivery", topic, offset, name, checksum, key)
            )
            self.deliveries[topic, group, offset].append(
                Delivery(
                    event["t"], event["w"], event["member"], topic, group,
                    round(event["lease"] * SECOND), event["asked"], offset, name, token, count, key,
                )
            )  # fmt: skip
        form = event["member"].rpartition("/")[2]
        self._counts[f"deliver ({form})", "done"] += len(event["rows"])

    def _take_closing(self, event: Event) -> None:
        self._closings[event["member"] or event["w"]].append(event["t"])

    def _take_stats(self, event: Event) -> None:
        self.extents[event["topic"]].append((event["t"], event["w"], event["first"], event["next"]))
        self._counts["stats", "done"] += 1

    def _take_fault(self, event: Event) -> None:
        if event["phase"] == "begin":
            # Without an end it lasts for ever.
            endless = 1 << 62
            self.faults.append(Fault(event["kind"], event["t"], endless, set(event["targets"])))
        elif event["phase"] == "end":
            self.faults[-1].ended = event["t"] + RECOVERY_NS
        else:
            self.faults[-1].targets.update(event["targets"])

    def _take_final_topic(self, event: Event) -> None:
        self.looks[event["look"]][event["topic"]] = FinalTopic(event["first"], event["next"])

    def _take_final_rows(self, event: Event) -> None:
        topic = self.looks[event["look"]][event["topic"]]
        for row in event["rows"]:
            seen = self._row(event, "last look", event["topic"], row)
            topic.rows[row[0]] = seen

    def _take_final_damage(self, event: Event) -> None:
        self.looks[event["look"]][event["topic"]].damaged.append((event["first"], event["end"]))

    def _take_final_group(self, event: Event) -> None:
        letters = [name for _, name, _ in event["letters"]]
        group = FinalGroup(event["lag"], letters)
        self.groups[event["look"]][event["topic"], event["group"]] = group

    def _row(self, event: Event, how: str, topic: str, row: list[Any]) -> Seen:
        offset, name, checksum, key, priority = row
        seen = Seen(event["t"], event["w"], how, topic, offset, name, checksum, key, priority)
        self.seen.append(seen)
        return seen

    def _account(self, call: Call) -> None:
        facts, kind = call.facts, call.facts["e"]
        form = {"publish": "how", "settle": "fate", "change": "verb"}.get(kind)
        verb = kind if form is None else f"{kind} ({facts[form]})"
        if kind in ("commit", "abort"):
            verb += " of staged writes"
        self._counts[verb, "done" if call.is_done else "failed"] += 1
        if kind == "publish":
            self._account_publish(call)
        elif kind == "settle":
            lost = set((call.outcome or {}).get("lost", ()))
            for offset, token in facts["rows"]:
                self.settles[facts["topic"], facts["group"], offset].append(
                    Settle(
                        call.worker,
                        call.begun,
                        facts["fate"],
                        token,
                        round(facts["delay"] * SECOND),
                        call.ended,
                        offset in lost,
                    )
                )
        elif kind in ("stage", "commit", "abort"):
            self._account_staged(call)

    def _account_publish(self, call: Call) -> None:
        facts = call.facts
        keys, priorities = facts.get("keys"), facts.get("priorities")
        for at, name in enumerate(facts["names"]):
            written = self.written.get(name)
            if written is None:
                written = self.written[name] = Written(
                    name,
                    facts["topic"],
                    facts["size"],
                    keys[at] if keys else None,
                    priorities[at] if priorities else 0,
                    facts.get("ttl"),
                    facts.get("delay"),
                    call.begun,
                )
            written.calls.append(call)
            if call.ended is not None and written.ended is None:
                written.ended = call.ended

    def _account_staged(self, call: Call) -> None:
        facts = call.facts
        staged = self.staged[facts["writer"], facts["number"]]
        if facts["e"] == "stage":
            staged.parts[facts["part"]] = facts["batches"]
            for topic, names in facts["batches"].items():
                for name in names:
                    self.written[name] = Written(
                        name, topic, facts["size"], None, 0, None, None, call.begun
                    )
        elif facts["e"] == "commit":
            staged.commits.append(call)
        else:
            staged.aborts.append(call)

    # --- questions

    @property
    def last(self) -> dict[str, FinalTopic]:
        """What there was at the very end."""
        return self.looks[max(self.looks)] if self.looks else {}

    @property
    def last_groups(self) -> dict[tuple[str, str], FinalGroup]:
        return self.groups[max(self.groups)] if self.groups else {}

    def publishes(self) -> Iterator[Call]:
        return (call for call in self.calls.values() if call.facts["e"] == "publish")

    def changes(self, *verbs: str) -> Iterator[Call]:
        for call in self.calls.values():
            if call.facts["e"] == "change" and call.facts["verb"] in verbs:
                yield call

    def closings(self, delivery: Delivery) -> list[int]:
        """When who got a delivery may have given it back by closing."""
        whose = (delivery.member, delivery.worker)
        return [at for who in whose for at in self._closings.get(who, ()) if at >= delivery.at]

    def is_undisturbed(self, begun: int, ended: int, *workers: str) -> bool:
        """Whether no fault that concerns these workers fell into that time."""
        names = {EVERYBODY, *workers, *(worker.partition(".")[0] for worker in workers)}
        return not any(
            fault.begun <= ended and begun <= fault.ended and fault.targets & names
            for fault in self.faults
        )

    def lost_power(self, begun: int, ended: int) -> bool:
        """Whether what was written and not synced may have gone in that time."""
        return any(
            fault.kind in POWER_FAULTS and fault.begun <= ended and begun <= fault.ended
            for fault in self.faults
        )

    def verbs(self) -> dict[str, dict[str, int]]:
        names = sorted({verb for verb, _ in self._counts})
        return {
            verb: {how: self._counts[verb, how] for how in ("done", "failed")} for verb in names
        }


def events_below(directory: Path) -> Iterator[Event]:
    """Of every story in a directory. Behind the last newline is what a killed process began."""
    for path in sorted(directory.iterdir()):
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)
