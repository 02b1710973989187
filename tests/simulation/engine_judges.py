"""What clients of the engine were told, and whether it can all be true.

- What was acknowledged is read in the end, at its offset.
- An offset has one value, for ever, whoever reads or takes it.
- Topics are logs that one after the other appends to and looks at (linearizable): what is published
  after another was acknowledged, or after somebody saw the end of the topic, lies behind that; and
  who looks later sees no earlier end.
- A publish that was sent again is there once.
- What was settled, and known to be, is not delivered to who asks later.
- Of one message there are no two live leases in one term.
- Once a node leads, no other has the leader's lease, by which messages are handed out.
- Where a group goes by key, a message is handed out when those of its key before it are acked.
- What nobody has settled is delivered in the end.
- Staged writes are there as a whole, or not at all.
- Nodes that have applied as much as each other hold the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b

from flintmq.engine.broker import Broker
from tests.engine.test_replicas import digest
from tests.simulation.invariants import Violation

DIGEST_EVERY = 7
"""Of how many entries one is looked at."""
TOKEN_BITS = 40


@dataclass(slots=True)
class HeldLease:
    """A message that a consumer was given: it may be its own until `ends`."""

    token: int
    holder: str
    ends: float


class Judges:
    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._seen: dict[tuple[str, int], bytes] = {}
        self._acknowledged: dict[tuple[str, int], bytes] = {}
        self._digests: dict[int, tuple[int, bytes]] = {}
        self._settled: dict[tuple[str, int], float] = {}
        self._leases: dict[tuple[str, int], HeldLease] = {}
        self._ends: dict[str, int] = {}
        self._delivered: set[tuple[str, int]] = set()
        self._acks: Counter[tuple[str, int]] = Counter()
        """How many have asked to settle a message, and were not refused."""
        self._of_key: dict[tuple[str, object], list[int]] = {}
        self._whole: dict[str, list[bytes]] = {}
        self._must_be_whole: set[str] = set()
        self.history = blake2b()
        """Of everything that was observed, in its order."""

    def note(self, *what: object) -> None:
        self.history.update(repr(what).encode())

    # --- publishing and reading

    def saw(self, topic: str, offset: int, value: bytes) -> None:
        known = self._seen.setdefault((topic, offset), value)
        if known != value:
            raise Violation(f"offset {offset} of {topic} was {known!r}, and is {value!r}")

    def end_of(self, topic: str) -> int:
        """Where the topic ends at least, by all that was told so far."""
        return self._ends.get(topic, 0)

    def looked(self, topic: str, end: int, *, known: int) -> None:
        """Who asked when it was `known` to end there heard that it ends at `end`."""
        self.note("looked", topic, end)
        if end < known:
            raise Violation(f"{topic} ended at {known} or later, and then at {end}")
        self._ends[topic] = max(end, self.end_of(topic))

    def placed(self, topic: str, offset: int, count: int, *, known: int) -> None:
        """Rows that were published when the topic was `known` to end there."""
        if offset < known:
            raise Violation(f"{topic} ended at {known} or later, and then {offset} was appended")
        self._ends[topic] = max(offset + count, self.end_of(topic))

    def acknowledged(self, topic: str, offset: int, values: list[bytes], *, known: int) -> None:
        self._counts["publishes acknowledged"] += 1
        self.note("published", topic, offset, values)
        self.placed(topic, offset, len(values), known=known)
        for at, value in enumerate(values, offset):
            self.saw(topic, at, value)
            self._acknowledged[topic, at] = value

    # --- digests

    def applied(self, node: int, index: int, broker: Broker) -> None:
        if index % DIGEST_EVERY == 0:
            self.compare(node, index, broker)

    def compare(self, node: int, index: int, broker: Broker) -> None:
        found = blake2b(repr(digest(broker)).encode(), digest_size=16).digest()
        other, known = self._digests.setdefault(index, (node, found))
        self._counts["digests compared"] += other != node
        self.note("applied", node, index, found)
        if known != found:
            raise Violation(f"nodes {other} and {node} differ once index {index} is applied")

    # --- consuming

    def granted(
        self,
        topic: str,
        holder: str,
        token: int,
        offsets: list[int],
        *,
        asked: float,
        now: float,
        ends: float,
    ) -> None:
        """Who asked before has them now: they were given in between."""
        self.note("granted", topic, holder, token, offsets)
        for offset in offsets:
            self._counts["deliveries"] += 1
            key = (topic, offset)
            if self._settled.get(key, asked) < asked:
                raise Violation(f"offset {offset} of {topic} was settled, and delivered again")
            held = self._leases.get(key)
            if held is not None and held.token >> TOKEN_BITS == token >> TOKEN_BITS:
                self._counts["deliveries again in a term"] += 1
                if held.ends > now:
                    raise Violation(
                        f"offset {offset} of {topic} is leased to {held.holder} by {held.token} "
                        f"until {held.ends:.3f}, and to {holder} by {token} as well"
                    )
            self._leases[key] = HeldLease(token, holder, ends)
            self._delivered.add(key)

    def in_turn(self, topic: str, offset: int, key: object) -> None:
        """A message of a key was handed out by a group that goes by key."""
        seen = self._of_key.setdefault((topic, key), [])
        for before in seen:
            if before < offset and not self._acks[topic, before]:
                raise Violation(
                    f"offset {offset} of {topic} was handed out, and {before} of the same key "
                    "is not acked"
                )
        if offset not in seen:
            seen.append(offset)

    def acks(self, topic: str, offsets: list[int]) -> None:
        """Somebody asks to settle them."""
        self._acks.update((topic, offset) for offset in offsets)

    def refused(self, topic: str, offsets: list[int]) -> None:
        self._acks.subtract((topic, offset) for offset in offsets)

    def given_up(self, topic: str, token: int, offsets: list[int]) -> None:
        """Its holder asks for the end of its lease: from now on it may be another's."""
        for offset in offsets:
            held = self._leases.get((topic, offset))
            if held is not None and held.token == token:
                del self._leases[topic, offset]

    def settled(self, topic: str, offsets: list[int], now: float) -> None:
        self.note("settled", topic, offsets)
        for offset in offsets:
            self._counts["settles acknowledged"] += 1
            self._settled.setdefault((topic, offset), now)

    def drained(self, topic: str, position: int, lag: int) -> None:
        """A group has nothing more to hand out."""
        self.note("drained", topic, position, lag)
        if lag:
            raise Violation(f"{lag} messages of {topic} are not settled, and never come")
        for offset in range(self.end_of(topic)):
            if (topic, offset) not in self._delivered:
                raise Violation(f"offset {offset} of {topic} was never delivered")

    # --- staging

    def stages(self, name: str, values: list[bytes]) -> None:
        self._whole[name] = values

    def committed(self, name: str) -> None:
        self._counts["commits acknowledged"] += 1
        self.note("committed", name)
        self._must_be_whole.add(name)

    # --- the end

    def judge(self, topics: dict[str, list[tuple[int, bytes]]]) -> None:
        """By all that is there in the end."""
        for topic, rows in topics.items():
            for offset, value in rows:
                self.saw(topic, offset, value)
            if [offset for offset, _ in rows] != list(range(len(rows))):
                raise Violation(f"{topic} has gaps: {[offset for offset, _ in rows]}")
            for value, count in Counter(value for _, value in rows).items():
                if count > 1:
                    raise Violation(f"{value!r} is in {topic} {count} times")
        present = {(topic, offset) for topic, rows in topics.items() for offset, _ in rows}
        for topic, offset in self._acknowledged:
            if (topic, offset) not in present:
                raise Violation(f"offset {offset} of {topic} was acknowledged, and is lost")
        self._judge_stages({value for rows in topics.values() for _, value in rows})

    def _judge_stages(self, found: set[bytes]) -> None:
        for name, values in self._whole.items():
            there = sum(value in found for value in values)
            if there not in (0, len(values)):
                raise Violation(f"of {name} there are {there} of {len(values)} rows")
            if name in self._must_be_whole and not there:
                raise Violation(f"{name} was committed, and is lost")
