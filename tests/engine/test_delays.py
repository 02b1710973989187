from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder
from flintmq.engine.leading.delays import Delays


def test_what_is_due_comes_in_order_of_time_then_of_publishing() -> None:
    delays = Delays()
    for due_ms, offset in [(30, 0), (10, 1), (20, 2), (10, 3)]:
        delays.add(due_ms, offset, 0)
    assert delays.next_due_ms() == 10
    assert delays.take_due(9) == []
    assert delays.take_due(20) == [(1, 0), (3, 0), (2, 0)]
    assert delays.next_due_ms() == 30
    assert delays.take_due(1000) == [(0, 0)]
    assert delays.next_due_ms() is None


def test_rows_that_are_stored_nowhere_else_are_counted() -> None:
    delays = Delays()
    rows = BatchBuilder.of([b"x"])
    delays.add_unstored(5, rows, 0)
    delays.add(5, 7, 3)
    assert (delays.stored, delays.unstored) == (1, 1)
    assert delays.take_due(5) == [(7, 3), (rows, 0)]
    assert (delays.stored, delays.unstored) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=40), st.integers(0, 40))
def test_forgetting_leaves_the_rest_in_order(
    adds: list[tuple[int, bool]], first_offset: int
) -> None:
    delays = Delays()
    rows = BatchBuilder.of([b"x"])
    expected = []
    for offset, (due_ms, stored) in enumerate(adds):
        if stored:
            delays.add(due_ms, offset, 0)
        else:
            delays.add_unstored(due_ms, rows, offset)
        if not stored or offset >= first_offset:
            expected.append((due_ms, not stored, offset))
    delays.forget_before(first_offset)
    left = delays.take_due(50)
    assert [first if isinstance(first, int) else second for first, second in left] == [
        offset for _, _, offset in sorted(expected)
    ]
    assert (delays.stored, delays.unstored) == (0, 0)


def test_those_that_wait_are_counted_from_an_offset_on() -> None:
    delays = Delays()
    for offset in range(10_000):
        delays.add(offset, offset, 0)
    assert (delays.count_from(0), delays.count_from(9_990)) == (10_000, 10)
    delays.take_due(99)
    delays.discard([9_999, 9_998])
    assert (delays.count_from(0), delays.count_from(9_990)) == (9_898, 8)
    delays.forget_before(5_000)
    assert delays.count_from(0) == 4_998
