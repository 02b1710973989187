"""What decoding JSON costs per message, beside bare msgspec on the same bytes.

    python -m benchmarks.json_cost [--quick]

A topic of 10,000 messages, read as batches and decoded: all at once with `rows.decode()`, and one
by one with `message.decode()`; untyped, into a Struct, and into a dataclass. Bare is a loop around
a msgspec decoder over the same list of bytes. Each way takes turns with the others; the best of
several rounds counts, and the ratio is of these. Nothing is asserted but that all give the same.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import msgspec

import flintmq

ROWS = 1_000


class OrderStruct(msgspec.Struct):
    id: int
    customer: str
    amount: float
    tags: list[str]


@dataclass
class OrderData:
    id: int
    customer: str
    amount: float
    tags: list[str]


TYPES: dict[str, Any] = {"untyped": None, "Struct": OrderStruct, "dataclass": OrderData}


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds per message."""

    type: str
    bare: float
    rows: float
    messages: float


def order(number: int) -> dict[str, Any]:
    return {"id": number, "customer": f"customer-{number % 100}", "amount": number / 8,
            "tags": ["new", "eu"]}  # fmt: skip


async def read(count: int) -> list[flintmq.Rows]:
    async with flintmq.connect("memory://") as mq:
        await mq.create_topic("orders", format="json")
        for start in range(0, count, ROWS):
            await mq.publish_batch("orders", map(order, range(start, start + ROWS)))
        batches = []
        async with mq.reader("orders") as reader:
            while rows := reader.read_batch_nowait(ROWS):
                batches.append(rows)
    return batches


def measured(name: str, batches: Sequence[flintmq.Rows], rounds: int) -> Cost:
    wanted = TYPES[name]
    data = [list(rows.values) for rows in batches]
    decoder: Any = msgspec.json.Decoder() if wanted is None else msgspec.json.Decoder(wanted)
    decode = decoder.decode

    def bare() -> list[list[Any]]:
        return [[decode(value) for value in values] for values in data]

    def by_rows() -> list[list[Any]]:
        return [rows.decode(wanted) for rows in batches]

    def by_messages() -> list[list[Any]]:
        return [[message.decode(wanted) for message in rows] for rows in batches]

    assert bare() == by_rows() == by_messages()
    ways = (bare, by_rows, by_messages)
    best = [float("inf")] * len(ways)
    for number in range(rounds):
        for turn in range(len(ways)):  # whoever goes first pays for cold caches: in turns
            way = (turn + number) % len(ways)
            best[way] = min(best[way], _nanoseconds(ways[way]))
    count = sum(map(len, data))
    return Cost(name, *(nanoseconds / count for nanoseconds in best))


def _nanoseconds(work: Callable[[], object]) -> int:
    start = perf_counter_ns()
    work()
    return perf_counter_ns() - start


def table(costs: Sequence[Cost]) -> str:
    lines = [
        "nanoseconds per message of about 72 bytes",
        f"{'decoded':12}{'bare msgspec':>14}{'rows.decode':>14}{'x bare':>8}"
        f"{'message.decode':>16}{'x bare':>8}",
    ]
    lines += [
        f"{cost.type:12}{cost.bare:14,.0f}{cost.rows:14,.0f}{cost.rows / cost.bare:8.2f}"
        f"{cost.messages:16,.0f}{cost.messages / cost.bare:8.2f}"
        for cost in costs
    ]
    return "\n".join(lines)


def json_line(costs: Sequence[Cost]) -> str:
    figures = {
        cost.type: {
            "bare_ns": round(cost.bare, 1),
            "rows_ns": round(cost.rows, 1),
            "messages_ns": round(cost.messages, 1),
            "rows_x_bare": round(cost.rows / cost.bare, 3),
            "messages_x_bare": round(cost.messages / cost.bare, 3),
        }
        for cost in costs
    }
    return json.dumps({"scenario": "json_cost", "cases": figures})


def main(arguments: Sequence[str]) -> int:
    if unknown := [argument for argument in arguments if argument != "--quick"]:
        print(f"unknown: {' '.join(unknown)}; there is --quick", file=sys.stderr)
        return 2
    quick = bool(arguments)
    batches = asyncio.run(read(ROWS if quick else 10 * ROWS))
    costs = [measured(name, batches, 2 if quick else 30) for name in TYPES]
    print(table(costs))
    print(json_line(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
