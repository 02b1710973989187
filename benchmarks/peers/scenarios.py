"""What is measured: a row of scenarios, each with its kind, its sizes, and what is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .job import LOOPS, POLL, Shape
from .modes import US, Mode

Kind = Literal[
    "publish",
    "open loop",
    "batches",
    "live",
    "consume",
    "drain",
    "parked",
    "latency",
    "live latency",
]
Goal = Literal["ahead", "within twice", "as it is"]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    kind: Kind
    goal: Goal
    in_flight: int = 1
    size: int = 100
    subscribers: int = 1
    topics: int = 1
    connections: int = 1
    loops: int = LOOPS
    read: int = POLL
    """How many loops consume, where a client can have several, and what each asks for."""
    variety: str = ""
    """What the messages of a drain have, or how they are read."""
    peers: tuple[str, ...] = ()
    """Who is measured besides the bare loop; empty: all."""

    @property
    def is_latency(self) -> bool:
        return self.kind in ("latency", "live latency", "open loop")

    @property
    def is_live(self) -> bool:
        return self.kind in ("live", "live latency")

    def takes(self, mode: Mode) -> bool:
        """Whether a mode is measured here at all; live paths have one line for each peer."""
        if self.peers and mode.peer not in self.peers:
            return False
        return mode.is_live if self.is_live else True

    def why_not(self, mode: Mode) -> str:
        """Why a mode that is measured here has no figure; empty where it has."""
        return mode.leaves_out.get("live" if self.is_live else self.kind, "")

    @property
    def has_two_shapes(self) -> bool:
        """Many publishes under way are calls that wait each, or a pipeline: we do both."""
        if self.kind == "publish":
            return self.in_flight > 1 and not self.is_spread
        return self.kind == "batches"

    @property
    def is_spread(self) -> bool:
        """Over many topics or connections there is one shape: each publish waits for its own."""
        return self.topics > 1 or self.connections > 1

    def shape_of(self, mode: Mode) -> Shape:
        """Which of the two a peer has. Only Kafka makes batches of single calls, as `send` does."""
        if self.kind == "batches":
            return "pipeline" if mode.peer == "kafka" else "calls"
        return mode.shape


THREE = (US, "redis", "nats")
"""Those whose clients can spread what is in flight; the bare loop has one socket."""
DRAINS = {
    "plain": "256 at a time",
    "each": "message by message, `async for` and `await ack()`",
    "process": "message by message, `async for` and `process()`",
    "headers": "messages with two headers",
    "ttl": "messages with a time to live",
    "keys": "order by key, 1,000 keys",
    "priority": "eight priorities, mixed",
    "filter": "a filter that passes a tenth; the figure counts the messages looked at",
}

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("publish-1", "Publish, 1 in flight", "publish", "within twice"),
    Scenario("publish-64", "Publish, 64 in flight", "publish", "ahead", 64),
    Scenario("publish-512", "Publish, 512 in flight", "publish", "ahead", 512),
    Scenario(
        "topics-1000", "Publish, 64 in flight over 1,000 topics", "publish", "ahead", 64,
        topics=1000, peers=THREE,
    ),
    *(
        Scenario(f"connections-{count}", f"Publish, 64 in flight over {count:,} connections",
                 "publish", "ahead", 64, connections=count, peers=THREE)
        for count in (64, 100, 2000)
    ),
    Scenario("batches", "Publish in batches of 100", "batches", "ahead"),
    Scenario("batches-1k", "Publish in batches of 100, 1 KiB each", "batches", "ahead", size=1024),
    Scenario("live-1", "Live, one subscriber", "live", "ahead"),
    Scenario("live-8", "Live, eight subscribers", "live", "ahead", subscribers=8),
    Scenario("consume", "Consume and acknowledge", "consume", "ahead"),
    Scenario(
        "consume-one-loop", "Consume and acknowledge, one loop", "consume", "ahead", loops=1,
        peers=THREE,
    ),
    Scenario(
        "consume-each", "Consume and acknowledge, one loop, one message for each read", "consume",
        "within twice", loops=1, read=1, peers=THREE,
    ),
    *(
        Scenario(f"drain-{name}", f"Drain with one loop: {title}", "drain", "as it is",
                 variety=name, peers=(US,))
        for name, title in DRAINS.items()
    ),
    Scenario(
        "parked", "Deliver to 1,000 parked groups", "parked", "as it is", subscribers=1000,
        peers=(US,),
    ),
    Scenario(
        "open-loop", "Publish on a schedule at half of capacity", "open loop", "as it is", 64,
        peers=THREE,
    ),
    Scenario("latency", "Latency of a stored message", "latency", "as it is"),
    Scenario("latency-live", "Latency of a live message", "live latency", "as it is"),
)  # fmt: skip

CLUSTER_SCENARIOS: tuple[Scenario, ...] = tuple(
    replace(scenario, goal="ahead")
    for scenario in SCENARIOS
    if scenario.name in ("publish-1", "publish-64", "publish-512", "batches", "consume", "latency")
)
