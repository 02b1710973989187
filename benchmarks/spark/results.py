"""From what the jobs cost to one table and one JSON line."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

from ..report import machine_line, shown

WANTED = {
    ("flintmq", "batch read"): 1.5e6,
    ("flintmq", "stream read"): 0.9e6,
    ("flintmq", "batch write, exactly once"): 0.7e6,
    ("flintmq", "batch write, at least once"): 0.7e6,
    ("flintmq", "stream write, exactly once"): 0.4e6,
    ("flintmq", "direct segment read"): 3e6,
}
"""Rows a second, from one topic of one partition on two cores."""

RIVALS = {
    "batch read": "batch read",
    "batch read, count and sum": "batch read, count and sum",
    "stream read": "stream read",
    "batch write, exactly once": "batch write, synced",
    "batch write, at least once": "batch write, synced",
    "stream write, exactly once": "stream write, synced",
}
"""Which job of Kafka's a job of ours is compared with: a receipt of ours is always synced."""

HEADINGS = (
    "store", "job", "first", "warm", "min-max", "wanted", "x Kafka", "JVM", "python", "broker",
    "stolen",
)  # fmt: skip
NOTES = (
    "first: rows a second in the first round. warm: the median of the others. JVM, python, broker: "
    "processor seconds for a million rows, warm.",
    "x Kafka: warm, against Kafka's job of the same kind, its topic flushed before the "
    "acknowledgement where ours is synced. stolen: what the host took from this machine meanwhile.",
)


class Results:
    def __init__(self, rows: int, rounds: int, facts: dict[str, Any]) -> None:
        self._rows, self._rounds = rows, rounds
        self.facts = facts
        self.latency: dict[str, float] = {}
        self._takes: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def add(self, store: str, job: str, figures: dict[str, Any]) -> None:
        self._takes.setdefault((store, job), []).append(figures)

    def has_failed(self) -> bool:
        return any("error" in take for takes in self._takes.values() for take in takes)

    def warm(self, store: str, job: str, figure: str = "rows/s") -> float | None:
        """The median of all rounds but the first; of one round, that one."""
        takes = [take for take in self._takes.get((store, job), ()) if figure in take]
        takes = takes[1:] or takes
        return median(take[figure] for take in takes) if takes else None

    def table(self) -> str:
        lines = [HEADINGS, *(self._line(*one) for one in self._takes)]
        widths = [max(len(line[at]) for line in lines) for at in range(len(HEADINGS))]
        text = [
            f"Topics in Spark: {self._rows:,} messages of 100 bytes and 8-byte keys, local[2], "
            f"{self._rounds} {'round' if self._rounds == 1 else 'rounds'}",
            machine_line(self.facts),
            "",
        ]
        for number, line in enumerate(lines):
            cells = [
                cell.ljust(width) if at < 2 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            text.append("  ".join(cells).rstrip())
            if number == 0:
                text.append("  ".join("-" * width for width in widths))
        for (store, job), takes in self._takes.items():
            text += [
                f"failed: {store}, {job}: {take['error']}" for take in takes if "error" in take
            ]
        text.append("")
        singly, batched = self.warm("flintmq", "batch read, published singly"), None
        if singly is not None:
            batched = self.warm("flintmq", "batch read")
        if singly is not None and batched is not None:
            text.append(f"published singly, read at {singly / batched:.2f} x (wanted 0.5)")
        if self.latency:
            figures = ", ".join(f"{name} {figure:,.0f}" for name, figure in self.latency.items())
            text.append(f"topic to topic at 1,000 messages/s, exactly once: {figures}")
        extra = {name: fact for name, fact in self.facts.items() if ":" in name or "MiB" in name}
        text.append(", ".join(f"{name} {fact}" for name, fact in extra.items()))
        return "\n".join([*text, *NOTES])

    def _line(self, store: str, job: str) -> tuple[str, ...]:
        takes = [take for take in self._takes[store, job] if "rows/s" in take]
        if not takes:
            return (store, job, "failed", *[""] * (len(HEADINGS) - 3))
        warm = takes[1:] or takes
        rates = [take["rows/s"] for take in warm]
        rate = median(rates)
        wanted = WANTED.get((store, job))
        kafka = self.warm("kafka", RIVALS.get(job, "")) if store == "flintmq" else None
        spread = f"{shown(min(rates), 'rate')}-{shown(max(rates), 'rate')}".replace(" ", "")
        return (
            store,
            job,
            shown(takes[0]["rows/s"], "rate"),
            shown(rate, "rate"),
            spread,
            "" if wanted is None else shown(wanted, "rate"),
            "" if kafka is None else f"{rate / kafka:.2f}",
            *(_each_million(warm, f"{party} s") for party in ("jvm", "python", "broker")),
            f"{median(take.get('stolen', 0.0) for take in warm):.0%}",
        )

    def json_line(self) -> str:
        rows = [
            {"store": store, "job": job, "wanted": WANTED.get((store, job)), "rounds": takes}
            for (store, job), takes in self._takes.items()
        ]
        whole = {
            "scenario": "spark",
            "messages": self._rows,
            "rounds": self._rounds,
            "machine": self.facts,
            "rows": rows,
            "latency": self.latency,
        }
        return json.dumps(whole)


def _each_million(takes: list[dict[str, Any]], name: str) -> str:
    spent = [take[name] / take["rows"] * 1e6 for take in takes if name in take]
    return f"{median(spent):.2f}" if spent else ""
