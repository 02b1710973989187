"""From takes to figures, ratios and verdicts. Pure: nothing here measures, reads or writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from .job import Shape
from .modes import BARE, CLUSTER_MODES, MODES, PEERS, TITLES, US, Durability, Mode
from .scenarios import CLUSTER_SCENARIOS, SCENARIOS, Scenario

Take = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ours against a peer's, at equal durability. Above 1 we are ahead, in latency as well."""

    ratio: float
    goal: str

    @property
    def is_met(self) -> bool:
        match self.goal:
            case "ahead":
                return self.ratio >= 1.0
            case "within twice":
                return self.ratio >= 0.5
        return True

    @property
    def words(self) -> str:
        if self.goal == "as it is":
            return ""
        if self.ratio >= 1.0:
            return "ahead"
        if self.goal == "within twice":
            return "within twice" if self.is_met else "**beyond twice**"
        return "**not ahead**"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a scenario's table."""

    mode: Mode
    shape: Shape
    spread: Spread | None
    error: str = ""
    verdict: Verdict | None = None
    p99: Spread | None = None
    server: Spread | None = None
    """Microseconds of the server's processors for each message."""
    offered: Spread | None = None
    """Messages per second that an open loop was given: half of what this broker can take."""
    p999: Spread | None = None


class Results:
    """Every take of a run, and what the run was made on."""

    def __init__(self, facts: Mapping[str, Any], missing: Mapping[str, str] | None = None) -> None:
        self.facts = dict(facts)
        self.missing = dict(missing or {})
        self.is_of_clusters: bool = self.facts.get("cluster", False)
        self.modes = CLUSTER_MODES if self.is_of_clusters else MODES
        self.at_rest: dict[str, float] = {}
        """MiB of each server before anything was asked of it."""
        self._takes: dict[tuple[str, str, Shape], list[Take]] = {}
        self._errors: dict[tuple[str, str, Shape], str] = {}

    def add(self, scenario: str, mode: str, shape: Shape, take: Take) -> None:
        self._takes.setdefault((scenario, mode, shape), []).append(dict(take))

    def add_error(self, scenario: str, mode: str, shape: Shape, error: str) -> None:
        self._errors[scenario, mode, shape] = error

    @property
    def errors(self) -> Mapping[tuple[str, str, Shape], str]:
        return self._errors

    def spread(self, scenario: str, mode: str, shape: Shape, figure: str) -> Spread | None:
        takes = self._takes.get((scenario, mode, shape), [])
        found = [take[figure] for take in takes if figure in take]
        return Spread(median(found), min(found), max(found)) if found else None

    def scenarios(self) -> list[Scenario]:
        seen = {scenario for scenario, _, _ in (*self._takes, *self._errors)}
        listed = CLUSTER_SCENARIOS if self.is_of_clusters else SCENARIOS
        return [scenario for scenario in listed if scenario.name in seen]

    def ours(self, scenario: Scenario, durability: Durability, shape: Shape) -> Spread | None:
        """What a peer is compared with: as durable, and in flight in the same shape."""
        figure = "p50" if scenario.is_latency else "msgs/s"
        for mode in self.modes:
            if mode.peer != US or not scenario.takes(mode):
                continue
            if scenario.is_live or mode.durability == durability:
                wanted = shape if scenario.has_two_shapes else scenario.shape_of(mode)
                return self.spread(scenario.name, mode.key, wanted, figure)
        return None

    def lines(self, scenario: Scenario) -> Iterator[Line]:
        for mode in self.modes:
            for shape in ("calls", "pipeline"):
                key = (scenario.name, mode.key, shape)
                if key in self._takes or key in self._errors:
                    yield self._line(scenario, mode, shape)

    def _line(self, scenario: Scenario, mode: Mode, shape: Shape) -> Line:
        figure = "p50" if scenario.is_latency else "msgs/s"
        spread = self.spread(scenario.name, mode.key, shape, figure)
        error = self._errors.get((scenario.name, mode.key, shape), "")
        verdict = None
        ours = self.ours(scenario, mode.durability, shape)
        # In an open loop everybody has a rate of their own: to divide would mean nothing.
        is_compared = mode.peer not in (US, BARE) and scenario.kind != "open loop"
        if spread is not None and ours is not None and is_compared:
            above, below = ours.median, spread.median
            if scenario.is_latency:
                above, below = below, above
            verdict = Verdict(above / below, scenario.goal)
        p99 = self.spread(scenario.name, mode.key, shape, "p99")
        server = self.spread(scenario.name, mode.key, shape, "server us")
        offered = self.spread(scenario.name, mode.key, shape, "offered")
        p999 = self.spread(scenario.name, mode.key, shape, "p99.9")
        return Line(mode, shape, spread, error, verdict, p99, server, offered, p999)

    def worst(self, scenario: Scenario, peer: str) -> Verdict | None:
        """Of all durabilities of a peer, the one where we look worst."""
        found = [
            line.verdict for line in self.lines(scenario) if line.mode.peer == peer and line.verdict
        ]
        return min(found, key=lambda verdict: verdict.ratio) if found else None

    def not_ahead(self) -> list[tuple[Scenario, Line]]:
        """Everything that is not as wanted."""
        return [
            (scenario, line)
            for scenario in self.scenarios()
            for line in self.lines(scenario)
            if line.verdict is not None and not line.verdict.is_met
        ]

    def memory(self) -> Iterator[tuple[str, float, float]]:
        """Of each server: what it is, MiB at rest, and the most while batches came in."""
        for server, rest in self.at_rest.items():
            most = [
                take["MiB"]
                for (scenario, key, _), takes in self._takes.items()
                if scenario == "batches" and self._server_of(key) == server
                for take in takes
                if "MiB" in take
            ]
            yield server, rest, max(most, default=0.0)

    def _server_of(self, key: str) -> str:
        return next(mode.server for mode in self.modes if mode.key == key)

    def peers(self) -> list[str]:
        seen = {key.partition(":")[0] for _, key, _ in self._takes}
        return [peer for peer in PEERS if peer in seen]

    # --- as JSON

    def to_json(self) -> str:
        keys = dict.fromkeys((*self._takes, *self._errors))
        rows = [
            {
                "scenario": scenario,
                "mode": mode,
                "shape": shape,
                "takes": [_rounded(take) for take in self._takes.get((scenario, mode, shape), [])],
                "error": self._errors.get((scenario, mode, shape), ""),
            }
            for scenario, mode, shape in keys
        ]
        whole = {
            "scenario": "peers",
            "facts": self.facts,
            "missing": self.missing,
            "at rest MiB": {name: round(one, 1) for name, one in self.at_rest.items()},
            "rows": rows,
        }
        return json.dumps(whole)

    @classmethod
    def from_json(cls, text: str) -> Results:
        whole = json.loads(text)
        results = cls(whole["facts"], whole["missing"])
        results.at_rest = whole["at rest MiB"]
        for row in whole["rows"]:
            for take in row["takes"]:
                results.add(row["scenario"], row["mode"], row["shape"], take)
            if row["error"]:
                results.add_error(row["scenario"], row["mode"], row["shape"], row["error"])
        return results


def server_title(server: str) -> str:
    """A server by its peer and what sets it apart."""
    peer, _, how = server.partition("-")
    return f"{TITLES[peer]} ({how})" if how else TITLES[peer]


def _rounded(take: Take) -> dict[str, float]:
    return {name: float(f"{figure:.6g}") for name, figure in take.items()}
