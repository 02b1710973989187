"""What a filter costs per message, beside a Python callable that asks the same of messages.

    python -m benchmarks.filter_cost [--quick]

Rows of one batch in memory, as a reader goes through them: `pick` over 1,000 rows at a time, and
the callable on a Message made for each. The best of several rounds counts; nothing is asserted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

import msgspec

from flintmq.batch import BatchBuilder, RowSource
from flintmq.rows import Message, Origin
from flintmq.serde.filters import compile_filter

ROWS = 1_000
ORIGIN = Origin("orders")

decode_json = msgspec.json.Decoder().decode


def decode(source: RowSource, row: int) -> object:
    return decode_json(source.value(row))


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to ask of a message, as an expression and as a callable."""

    text: str
    ask: Callable[[Message], bool]


def _by_field(message: Message) -> bool:
    value = decode_json(message.value)
    return isinstance(value, dict) and value.get("amount", 0) > 50_000


def _by_item(message: Message) -> bool:
    try:
        return bool(decode_json(message.value)["items"][0]["price"] in (1, 2, 3))
    except (KeyError, IndexError, TypeError):
        return False


def _by_three(message: Message) -> bool:
    if message.headers.get("region") != "eu" or message.priority < 5:
        return False
    return _by_field(message)


QUESTIONS = (
    Question('topic == "orders"', lambda message: message.topic == "orders"),
    Question("priority >= 5", lambda message: message.priority >= 5),
    Question("offset % 10 == 0", lambda message: (message.offset or 0) % 10 == 0),
    Question("size > 60", lambda message: message.size > 60),
    Question('key == "customer-7"', lambda message: message.key == "customer-7"),
    Question('headers.region == "eu"', lambda message: message.headers.get("region") == "eu"),
    Question("value.amount > 50000", _by_field),
    Question("value.items[0].price in [1, 2, 3]", _by_item),
    Question('headers.region == "eu" and priority >= 5 and value.amount > 50000', _by_three),
)


def sources() -> dict[str, RowSource]:
    """The same messages in a finished batch and in an open one, and a batch of values alone."""
    rows, bare = BatchBuilder(0), BatchBuilder(0)
    for number in range(ROWS):
        value = msgspec.json.encode(
            {"id": number, "amount": number * 100, "items": [{"price": number % 8, "sku": "a-1"}]}
        )
        bare.append(value)
        rows.append_row(
            value,
            key=f"customer-{number % 100}",
            headers={"region": "eu" if number % 2 else "us", "trace": f"{number:032x}"},
            priority=number % 8,
        )
    return {"sealed": rows.seal(), "open": rows, "values alone": bare.seal()}


def best_nanoseconds(once: Callable[[], Sequence[int]], rounds: int) -> float:
    """Per message, in the best of some rounds."""
    once()
    best = float("inf")
    for _ in range(rounds):
        began = perf_counter_ns()
        once()
        best = min(best, perf_counter_ns() - began)
    return best / ROWS


def measure(rounds: int = 30) -> list[dict[str, float | int | str]]:
    """One line per batch and question: nanoseconds per message, both ways."""
    lines: list[dict[str, float | int | str]] = []
    for batch, source in sources().items():
        for question in QUESTIONS:
            compiled, ask, rows = compile_filter(question.text), question.ask, range(ROWS)

            def by_filter() -> list[int]:
                return compiled.pick(source, rows, ORIGIN, decode)  # noqa: B023

            def by_callable() -> list[int]:
                return [row for row in rows if ask(Message(source, row, ORIGIN))]  # noqa: B023

            picked = by_filter()
            assert picked == by_callable(), question.text
            lines.append(
                {
                    "batch": batch,
                    "filter": question.text,
                    "matches": len(picked),
                    "filter_ns": round(best_nanoseconds(by_filter, rounds), 1),
                    "callable_ns": round(best_nanoseconds(by_callable, rounds), 1),
                }
            )
    return lines


def compile_microseconds(rounds: int) -> float:
    """What the longest of the filters costs once: checking it, and making the first function."""
    text, source = QUESTIONS[-1].text, sources()["open"]

    def once() -> list[int]:
        return compile_filter(text).pick(source, range(1), ORIGIN, decode)

    return best_nanoseconds(once, rounds) * ROWS / 1000


def main() -> None:
    rounds = 3 if "--quick" in sys.argv[1:] else 30
    lines, once = measure(rounds), compile_microseconds(rounds)
    print(f"{'nanoseconds per message':<76} filter  callable  matches of {ROWS:,}")
    for line in lines:
        asked = f"{line['batch']:<13} {line['filter']}"
        figures = f"{line['filter_ns']:>7,.0f} {line['callable_ns']:>9,.0f}"
        print(f"{asked:<75}{figures} {line['matches']:>8,}")
    print(f"{'to compile the last one, in microseconds':<75}{once:>7,.0f}")
    print(json.dumps({"scenario": "filter_cost", "compile_us": round(once, 1), "lines": lines}))


if __name__ == "__main__":
    main()
