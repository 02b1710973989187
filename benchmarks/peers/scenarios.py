"""What is measured: a row of scenarios, each with its kind, its sizes, and what is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .job import Shape
from .modes import Mode

Kind = Literal["publish", "batches", "live", "consume", "latency", "live latency"]
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

    @property
    def is_latency(self) -> bool:
        return self.kind in ("latency", "live latency")

    @property
    def is_live(self) -> bool:
        return self.kind in ("live", "live latency")

    def takes(self, mode: Mode) -> bool:
        """Whether a mode is measured here at all; live paths have one line for each peer."""
        return mode.is_live if self.is_live else True

    def why_not(self, mode: Mode) -> str:
        """Why a mode that is measured here has no figure; empty where it has."""
        return mode.leaves_out.get("live" if self.is_live else self.kind, "")

    @property
    def has_two_shapes(self) -> bool:
        """Many publishes under way are calls that wait each, or a pipeline: we do both."""
        return self.kind == "batches" or (self.kind == "publish" and self.in_flight > 1)

    def shape_of(self, mode: Mode) -> Shape:
        """Which of the two a peer has. Only Kafka makes batches of single calls, as `send` does."""
        if self.kind == "batches":
            return "pipeline" if mode.peer == "kafka" else "calls"
        return mode.shape


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("publish-1", "Publish, 1 in flight", "publish", "within twice"),
    Scenario("publish-64", "Publish, 64 in flight", "publish", "ahead", 64),
    Scenario("publish-512", "Publish, 512 in flight", "publish", "ahead", 512),
    Scenario("batches", "Publish in batches of 100", "batches", "ahead"),
    Scenario("batches-1k", "Publish in batches of 100, 1 KiB each", "batches", "ahead", size=1024),
    Scenario("live-1", "Live, one subscriber", "live", "ahead"),
    Scenario("live-8", "Live, eight subscribers", "live", "ahead", subscribers=8),
    Scenario("consume", "Consume and acknowledge", "consume", "ahead"),
    Scenario("latency", "Latency of a stored message", "latency", "as it is"),
    Scenario("latency-live", "Latency of a live message", "live latency", "as it is"),
)
