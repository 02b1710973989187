"""Windows of sequences beside a dictionary and a queue."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.engine import dedup
from flintmq.engine.dedup import Flying, Producers, Window
from flintmq.errors import InvalidRequest

WINDOW = 12
U64_MAX = 2**64 - 1


class Model:
    """Where each sequence went, oldest arrival first."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def find(self, sequence: int, count: int) -> int | str | None:
        offsets = [self.known.get(n) for n in range(sequence, sequence + count)]
        if all(offset is None for offset in offsets):
            return None
        first = offsets[0]
        if first is not None and offsets == list(range(first, first + count)):
            return first
        return "overlap"

    def add(self, sequence: int, count: int, offset: int) -> None:
        for n in range(count):
            self.known[sequence + n] = offset + n
        while len(self.known) > WINDOW:
            del self.known[next(iter(self.known))]


def found(window: Window, sequence: int, count: int) -> int | str | None:
    try:
        return window.find(sequence, count)
    except InvalidRequest:
        return "overlap"


sequences = st.one_of(st.integers(0, 40), st.integers(U64_MAX - 8, U64_MAX))


@given(
    st.lists(st.tuples(sequences, st.integers(1, 5), st.integers(0, 3), st.booleans()), max_size=60)
)
@settings(max_examples=150, deadline=None)
def test_a_window_knows_the_last_sequences_in_any_order(
    sent: list[tuple[int, int, int, bool]],
) -> None:
    window, model, offset = Window(WINDOW), Model(), 0
    for sequence, count, skipped, restart in sent:
        count = min(count, U64_MAX + 1 - sequence)
        assert found(window, sequence, count) == model.find(sequence, count)
        if model.find(sequence, count) is None:
            offset += skipped  # messages of others
            window.add(sequence, count, offset)
            model.add(sequence, count, offset)
            offset += count
        if restart:
            kept = msgspec.msgpack.decode(msgspec.msgpack.encode(window.snapshot()))
            window = Window.restored(kept)
            window._sequences_max = WINDOW
        for known, at in model.known.items():
            assert window.find(known, 1) == at
        assert window._count == len(model.known)


def test_a_producer_that_counts_up_costs_one_run() -> None:
    window = Window()
    for n in range(1_000):
        window.add(n * 3, 3, n * 3)

    assert len(window.snapshot()[0]) == 1
    assert len(window.snapshot()[1]) == 1


def test_a_batch_larger_than_the_window_is_known_whole_until_the_next_one() -> None:
    window = Window(WINDOW)
    window.add(0, WINDOW + 5, 100)

    assert window.find(0, WINDOW + 5) == 100
    window.add(1000, 1, 1000)
    assert window.find(6, WINDOW - 1) == 106
    assert window.find(0, 6) is None


def test_the_window_is_100_000_sequences() -> None:
    window = Window()
    window.add(0, dedup.SEQUENCES_MAX, 0)
    assert window.find(0, 1) == 0
    window.add(10**9, 1, 10**6)

    assert window.find(0, 1) is None
    assert window.find(1, 1) == 1


def test_the_producer_that_was_quiet_longest_is_forgotten_first() -> None:
    producers = Producers(producers_max=2)
    producers.add("a", 1, 1, 10)
    producers.add("b", 1, 1, 11)
    producers.add("a", 2, 1, 12)
    producers.add("c", 1, 1, 13)

    assert producers.find("a", 1, 1) == 10
    assert producers.find("b", 1, 1) is None
    assert producers.find("c", 1, 1) == 13
    again = Producers(producers_max=2)
    again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(producers.snapshot())))
    again.add("d", 1, 1, 14)
    assert again.find("a", 1, 1) is None, "the order of quietness is kept too"
    assert again.find("c", 1, 1) == 13


def test_a_resend_that_overlaps_in_part_is_refused() -> None:
    window = Window()
    window.add(10, 5, 0)
    for sequence, count in [(8, 4), (12, 5), (9, 8), (14, 2)]:
        with pytest.raises(InvalidRequest, match="overlap"):
            window.find(sequence, count)
    assert window.find(11, 3) == 1


def test_what_is_on_its_way_answers_for_a_resend_until_it_has_arrived() -> None:
    flying: Flying[str] = Flying()
    flying.add("one", 0, 10, "first")
    flying.add("one", 10, 5, "second")

    assert flying.find("one", 0, 10) == "first"
    assert flying.find("one", 10, 5) == "second"
    assert flying.find("one", 15, 5) is None
    assert flying.find("two", 0, 10) is None
    flying.remove("one", 0)
    assert flying.find("one", 0, 10) is None
    assert flying.find("one", 10, 5) == "second"


def test_sequences_that_go_back_are_looked_for_among_all_that_are_on_their_way() -> None:
    flying: Flying[str] = Flying()
    flying.add("one", 100, 100, "high")
    flying.add("one", 0, 10, "low")

    assert flying.find("one", 50, 50) is None
    for first, count in ((150, 10), (99, 2), (199, 1), (5, 10)):
        with pytest.raises(InvalidRequest, match="overlap"):
            flying.find("one", first, count)
