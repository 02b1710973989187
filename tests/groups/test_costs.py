"""Nothing a queue does grows with its backlog. Counted, not timed."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest

from flintmq.group_model import Order
from flintmq.groups import LaneIndex, Queue

TEN_MILLION = 10_000_000


def backlog(count: int, *, with_priorities: bool, order: Order = "priority") -> Queue:
    index = LaneIndex()
    row = bytes(number % 8 for number in range(1_000)) if with_priorities else None
    step = 1_000 if with_priorities else max(1_000, count // 100)
    for base in range(0, count, step):
        index.add(base, min(step, count - base), row and row[: count - base])
    return Queue(index, order=order, floor=0)


@dataclass
class Calls:
    total: int = 0


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """How many functions are called, ours and Python's own."""
    calls = Calls()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        calls.total += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def calls_of(work: Callable[[], object]) -> int:
    with counted_calls() as calls:
        work()
    return calls.total


def no_keys(start: int, stop: int) -> list[int]:
    return [0] * (stop - start)


def one_of_each(queue: Queue) -> None:
    """Take one, give it back, take it again, settle it."""
    ranges = queue.select(1, max_deliveries=5, key_hashes=no_keys).ranges
    token = queue.grant(ranges, "anna", now=0.0, seconds=30.0)
    queue.nack(token, ranges, None)
    ranges = queue.select(1, max_deliveries=5, key_hashes=no_keys).ranges
    token = queue.grant(ranges, "anna", now=0.0, seconds=30.0)
    queue.apply_settle(queue.finish(token, ranges)[0])
    assert queue.floor + len(queue.settled) == 1


@pytest.mark.parametrize("order", ["priority", "log", "key"])
def test_one_message_of_ten_million_costs_what_it_costs_of_ten(order: Order) -> None:
    few = backlog(10, with_priorities=False, order=order)
    many = backlog(TEN_MILLION, with_priorities=False, order=order)

    assert calls_of(lambda: one_of_each(many)) <= calls_of(lambda: one_of_each(few)) + 5


@pytest.mark.parametrize("order", ["priority", "log", "key"])
def test_one_message_of_many_with_priorities_costs_what_it_costs_of_a_few(order: Order) -> None:
    few = backlog(100, with_priorities=True, order=order)
    many = backlog(200_000, with_priorities=True, order=order)

    assert calls_of(lambda: one_of_each(many)) <= calls_of(lambda: one_of_each(few)) + 5


def test_a_plain_backlog_of_ten_million_is_a_few_kilobytes() -> None:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    queue = backlog(TEN_MILLION, with_priorities=False)
    queue.grant(queue.select(256).ranges, "anna", now=0.0, seconds=30.0)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown < 32 * 1024


@pytest.mark.slow
def test_a_message_with_a_priority_costs_at_most_32_bytes_however_many_groups() -> None:
    count = 200_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    queue = backlog(count, with_priorities=True)
    others = [Queue(queue._ready.index, order="priority", floor=0) for _ in range(10)]
    for each in (queue, *others):
        each.grant(each.select(256).ranges, "anna", now=0.0, seconds=30.0)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown / count <= 32


@pytest.mark.slow
def test_messages_nacked_with_a_delay_cost_at_most_32_bytes() -> None:
    count = 50_000
    queue = backlog(count, with_priorities=True)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    while ranges := queue.select(1_000).ranges:
        token = queue.grant(ranges, "anna", now=0.0, seconds=30.0)
        queue.nack(token, ranges, 60_000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert len(queue.places.delayed) == count
    assert grown / count <= 32


@pytest.mark.slow
def test_delayed_messages_that_are_all_due_cost_a_few_bits() -> None:
    count = 200_000
    index = LaneIndex()
    for base in range(0, count, 1_000):
        index.add(base, 1_000, None, range(1_000))
    queue = Queue(index, order="priority", floor=0)
    due = [(offset, offset % 8) for offset in range(count)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    queue.add_due(due)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown / count <= 4
    assert sum(map(len, queue._ready.returned)) == count
