"""The rows of the run: scenarios of `benchmarks.peers`, in process, and through the Hermes port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..peers.modes import MODES, US, Durability, Mode
from ..peers.scenarios import SCENARIOS, Scenario

IN_PROCESS = "in-process"
HERMES = {
    "hermes-sequential": "sequential",
    "hermes-many": "32 under way, as produceMany",
    "hermes-poll": "poll 256, ack each",
}
TITLES = {
    IN_PROCESS: "In process, one publisher, one consumer, 1 KiB, message by message",
    "hermes-sequential": "Hermes port, one request after the other",
    "hermes-many": "Hermes port, 32 requests under way, as `produceMany` of Node's client",
    "hermes-poll": "Hermes port, poll 256, ack each",
}
BESIDE = ("publish", "latency", "live latency")
"""Kinds that Redis and NATS are measured at as well."""
IN_BOTH = ("publish-1", "connections-64", "latency")
"""Scenarios whose cached figure is wanted, too."""
FSYNC = {"synced": "always", "cached": "interval:1000"}


@dataclass(frozen=True, slots=True)
class Build:
    """A build of FlintMQ: what it is called, and the folder that holds its `flintmq`."""

    name: str
    site: str


@dataclass(frozen=True, slots=True)
class Row:
    scenario: Scenario
    durability: Durability

    @property
    def key(self) -> str:
        return f"{self.scenario.name} {self.durability}"

    @property
    def title(self) -> str:
        if self.scenario.is_live:
            return self.scenario.title
        words = "synced" if self.durability == "synced" else "cache"
        return f"{self.scenario.title}, {words}"

    def mode_of(self, build: Build) -> Mode:
        return Mode(
            US, build.name, self.durability, "", f"{build.name} {self.durability}",
            site=build.site, is_live=True,
        )  # fmt: skip

    def modes_of_peers(self, peers: list[str]) -> Iterator[Mode]:
        if self.scenario.kind not in BESIDE:
            return
        for mode in MODES:
            is_equal = self.scenario.is_live or mode.durability == self.durability
            if mode.peer in peers and self.scenario.takes(mode) and is_equal:
                yield mode


def network_rows() -> list[Row]:
    rows: list[Row] = []
    for scenario in SCENARIOS:
        rows.append(Row(scenario, "synced"))
        if scenario.name in IN_BOTH:
            rows.append(Row(scenario, "cached"))
    return rows
