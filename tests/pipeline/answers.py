"""What the ready-made pipelines are to give, computed in plain Python, without a word of Spark.

Rows are dictionaries, times are seconds. A list of rows is a micro-batch, since what is late
depends on what came in those before. Where the rules are Spark's, they are written down here again:

- the watermark of a batch is the greatest time of all batches before it, less the delay;
- a row is dropped as late by the watermark of the batch before its own;
- a result goes out when the watermark has reached its end, in a batch with or without rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Row = dict[str, Any]
Batches = Sequence[Sequence[Row]]


def watermarks(batches: Batches, delay: float, column: str = "at") -> list[tuple[float, float]]:
    """For each batch, and one without rows behind them all: what is late, and what is over."""
    marks: list[tuple[float, float]] = []
    late = over = 0.0
    for batch in [*batches, []]:
        marks.append((late, over))
        times = [row[column] - delay for row in batch if row.get(column) is not None]
        late, over = over, max([over, *times])
    marks[-1] = (marks[-1][0], over)
    return marks


def percentile(values: Iterable[float], share: float) -> float:
    """With what lies between two values taken in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below, above = math.floor(place), math.ceil(place)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def rollup(batches: Batches, *, window: float, delay: float) -> list[Row]:
    marks = watermarks(batches, delay)
    amounts: dict[tuple[str, float], list[float]] = defaultdict(list)
    for batch, (late, _) in zip(batches, marks, strict=False):
        for row in batch:
            if row.get("at") is None:
                continue
            since = row["at"] // window * window
            if since + window > late:
                amounts[row["region"], since].append(row["amount"])
    return [
        {
            "region": region,
            "since": since,
            "until": since + window,
            "orders": len(found),
            "amount": math.fsum(found),
            "median": percentile(found, 0.5),
            "p95": percentile(found, 0.95),
        }
        for (region, since), found in amounts.items()
        if since + window <= marks[-1][1]
    ]


def sessions(batches: Batches, *, gap: float, delay: float) -> list[Row]:
    marks = watermarks(batches, delay)
    still_open: dict[str, list[tuple[float, float, list[str]]]] = defaultdict(list)
    closed: list[Row] = []
    for batch, (late, over) in zip([*batches, []], marks, strict=True):
        for row in batch:
            if row["at"] + gap > late:
                still_open[row["visitor"]].append((row["at"], row["at"] + gap, [row["page"]]))
        for visitor, pieces in still_open.items():
            joined: list[tuple[float, float, list[str]]] = []
            for since, until, pages in sorted(pieces):
                if joined and since <= joined[-1][1]:
                    first, last, before = joined[-1]
                    joined[-1] = (first, max(last, until), before + pages)
                else:
                    joined.append((since, until, pages))
            closed += [
                {
                    "visitor": visitor,
                    "since": since,
                    "until": until,
                    "clicks": len(pages),
                    "pages": len(set(pages)),
                }
                for since, until, pages in joined
                if until <= over
            ]
            still_open[visitor] = [piece for piece in joined if piece[1] > over]
    return closed


def dedupe(batches: Batches, *, within: float) -> list[Row]:
    marks = watermarks(batches, within)
    known_until: dict[int, float] = {}
    first: list[Row] = []
    for batch, (late, over) in zip(batches, marks, strict=False):
        for row in batch:
            if row["at"] > late and row["id"] not in known_until:
                known_until[row["id"]] = row["at"] + within
                first.append(row)
        known_until = {one: until for one, until in known_until.items() if until > over}
    return first


def enrich(orders: Iterable[Row], customers: Iterable[Row]) -> list[Row]:
    by_id = {customer["id"]: customer for customer in customers}
    return [
        order
        | {
            what: by_id[order["customer"]][what]
            for what in ("name", "country")
            if order["customer"] in by_id
        }
        for order in orders
    ]


def join(orders: Batches, payments: Batches, *, within: float, delay: float) -> list[Row]:
    """The watermark of both is that of the slower one."""
    marks = [
        (min(one[0], other[0]), min(one[1], other[1]))
        for one, other in zip(
            watermarks(orders, delay), watermarks(payments, delay, "paid_at"), strict=True
        )
    ]
    in_time = [
        row
        for batch, (late, _) in zip(orders, marks, strict=False)
        for row in batch
        if row["at"] > late
    ]
    paid = [
        row
        for batch, (late, _) in zip(payments, marks, strict=False)
        for row in batch
        if row["paid_at"] > late
    ]
    found = []
    for order in in_time:
        fitting = [
            payment
            for payment in paid
            if payment["order_id"] == order["id"]
            and order["at"] <= payment["paid_at"] <= order["at"] + within
        ]
        found += [
            order | {"paid": payment["paid"], "paid_at": payment["paid_at"]} for payment in fitting
        ]
        if not fitting and order["at"] + within < marks[-1][1]:
            found.append(order)
    return found


def current(changes: Iterable[Row]) -> list[Row]:
    latest: dict[int, Row] = {}
    for change in changes:
        row = change.get("after") or change["before"]
        known = latest.get(row["id"])
        if known is None or change["position"] >= known["position"]:
            latest[row["id"]] = change
    return [
        change["after"] | {"position": change["position"]}
        for change in latest.values()
        if change["op"] != "d"
    ]


def deaths(letters: Iterable[Row], why: Callable[[str], str]) -> dict[tuple[str, str, str], int]:
    counts: dict[tuple[str, str, str], int] = defaultdict(int)
    for letter in letters:
        counts[letter["source"], letter["consumer"], why(letter["reason"])] += 1
    return dict(counts)


def anomalies(batches: Batches, *, last: int, at_least: int, score: float) -> list[Row]:
    before: dict[str, list[float]] = defaultdict(list)
    found = []
    for batch in batches:
        for row in sorted(batch, key=lambda row: (row["at"], row["reading"])):
            known = before[row["sensor"]][-last:]
            if len(known) >= at_least:
                mean = sum(known) / len(known)
                deviation = math.sqrt(sum((x - mean) ** 2 for x in known) / len(known))
                if deviation and abs(row["reading"] - mean) / deviation >= score:
                    off = (row["reading"] - mean) / deviation
                    found.append(row | {"mean": mean, "deviation": deviation, "score": off})
            before[row["sensor"]].append(row["reading"])
    return found


def by_hour(rows: Iterable[Row]) -> dict[tuple[str, str], list[int]]:
    """The ids of rows by the date and hour of their times, in UTC."""
    from datetime import UTC, datetime

    hours: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        at = datetime.fromtimestamp(row["at"], UTC)
        hours[f"{at:%Y-%m-%d}", f"{at:%H}"].append(row["id"])
    return {hour: sorted(ids) for hour, ids in hours.items()}
