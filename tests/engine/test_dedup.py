"""Windows of sequences beside a dictionary and a queue."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder, DecodeCache, RecordBatch
from flintmq.engine.state import producers as dedup
from flintmq.engine.state.constants import SEQUENCES_MAX
from flintmq.engine.state.memory_log import MemoryLog
from flintmq.engine.state.producers import Producers, Remembered, Window
from flintmq.engine.state.topic import TopicState
from flintmq.engine.view import TopicView
from flintmq.errors import InvalidRequest
from flintmq.model import TopicOptions

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
            window = Window.of(0, window.runs(), window.arrivals())
            window._sequences_max = WINDOW
        for known, at in model.known.items():
            assert window.find(known, 1) == at
        assert window._count == len(model.known)


def test_a_producer_that_counts_up_costs_one_run() -> None:
    window = Window()
    for n in range(1_000):
        window.add(n * 3, 3, n * 3)

    assert len(window.runs()) == 1
    assert len(window.arrivals()) == 1


def test_a_batch_larger_than_the_window_is_known_whole_until_the_next_one() -> None:
    window = Window(WINDOW)
    window.add(0, WINDOW + 5, 100)

    assert window.find(0, WINDOW + 5) == 100
    window.add(1000, 1, 1000)
    assert window.find(6, WINDOW - 1) == 106
    assert window.find(0, 6) is None


def test_the_window_is_100_000_sequences_and_a_few() -> None:
    window = Window()
    window.add(0, SEQUENCES_MAX, 0)
    assert window.find(0, 1) == 0
    window.add(10**9, 7_000, 10**6)

    assert window.find(6_999, 1) is None
    assert window.find(7_000, 1) == 7_000


def restored(producers: Producers, remembered: Remembered | None = None) -> Producers:
    again = Producers(remembered)
    for _ in again.restoring(producers.snapshot().encoded()):
        pass
    return again


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), sequences, st.integers(1, 5), st.integers(0, 3)),
        max_size=60,
    ),
    st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_producers_know_what_each_has_sent_also_after_a_restart(
    sent: list[tuple[str, int, int, int]], restart: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dedup, "SMALL_RUNS", 3)
        patch.setattr(dedup, "SEQUENCES_MAX", WINDOW)
        producers, models, offset = Producers(), {"a": Model(), "b": Model()}, 0
        for number, (name, sequence, count, skipped) in enumerate(sent):
            count = min(count, U64_MAX + 1 - sequence)
            model = models[name]
            try:
                known: int | str | None = producers.find(name, sequence, count)
            except InvalidRequest:
                known = "overlap"
            assert known == model.find(sequence, count)
            if known is None:
                offset += skipped
                producers.add(name, sequence, count, offset)
                model.add(sequence, count, offset)
                offset += count
            if number % 4 == restart:
                before = producers.snapshot().encoded()
                again = restored(producers)
                assert again.snapshot().encoded() == before
                assert again.bytes == producers.bytes
                producers = again


def test_a_producer_that_counts_up_for_ever_takes_a_few_bytes() -> None:
    producers = Producers()
    for number in range(300):
        producers.add("p", number * 1_000, 1_000, number * 1_000)

    assert producers.bytes < 500
    assert producers.find("p", 200_000, 1_000) == 200_000
    assert producers.find("p", 190_000, 1_000) is None


def test_the_producer_that_was_quiet_longest_is_forgotten_first_in_whichever_topic() -> None:
    remembered = Remembered(bytes_max=1_100)
    one, other = Producers(remembered, 1), Producers(remembered, 2)
    one.add("a", 1, 1, 10, 1)
    other.add("b", 1, 1, 11, 2)
    one.add("a", 2, 1, 12, 3)
    other.add("c", 1, 1, 13, 4)
    assert len(one) + len(other) == 3
    one.add("d", 1, 1, 14, 5)

    assert other.find("b", 1, 1) is None
    assert one.find("a", 1, 1) == 10
    one.add("e", 1, 1, 15, 6)
    assert one.find("a", 1, 1) is None
    assert other.find("c", 1, 1) == 13
    assert remembered.bytes == one.bytes + other.bytes <= 1_100


def test_producers_are_forgotten_by_age_as_messages_come() -> None:
    remembered = Remembered(age_ms=1_000)
    one, other = Producers(remembered, 1), Producers(remembered, 2)
    one.add("a", 1, 1, 10, 5_000)
    other.add("b", 1, 1, 11, 6_000)
    assert one.find("a", 1, 1) == 10, "not a millisecond too early"
    other.add("b", 2, 1, 12, 5_500)
    assert one.find("a", 1, 1) == 10, "time does not go back, nor on"
    other.add("c", 1, 1, 13, 6_015)
    assert one.find("a", 1, 1) == 10
    other.add("c", 2, 1, 14, 6_016)

    assert one.find("a", 1, 1) is None
    assert other.find("b", 1, 2) == 11


def test_topics_that_go_give_back_what_their_producers_took() -> None:
    remembered = Remembered()
    one, other = Producers(remembered, 1), Producers(remembered, 2)
    for number in range(100):
        one.add(f"p{number}", 1, 1, number, number)
        other.add(f"p{number}", 1, 1, number, number)
    one.clear()
    other.forget()

    assert remembered.bytes == 0
    one.add("again", 1, 1, 1, 200)
    assert one.find("again", 1, 1) == 1


def test_any_number_of_short_lived_producers_stays_within_the_bound() -> None:
    remembered = Remembered(bytes_max=1_000_000)
    topics = [Producers(remembered, number) for number in range(3)]
    for number in range(22_000):
        topics[number % 3].add(f"client-{number:030}", 0, 3, number, number)

    assert remembered.bytes <= 1_000_000
    assert sum(len(topic) for topic in topics) > 2_000
    assert topics[21_999 % 3].find(f"client-{21_999:030}", 0, 3) == 21_999


def test_windows_of_an_earlier_version_are_taken_up() -> None:
    producers = Producers()
    producers.restore_older([("p", [[[5, 2, 100], [9, 1, 200]], [[5, 2], [9, 1]]])], 1_000)

    assert producers.find("p", 5, 2) == 100
    assert producers.find("p", 9, 1) == 200
    assert restored(producers).find("p", 9, 1) == 200


def test_a_resend_that_overlaps_in_part_is_refused() -> None:
    window = Window()
    window.add(10, 5, 0)
    for sequence, count in [(8, 4), (12, 5), (9, 8), (14, 2)]:
        with pytest.raises(InvalidRequest, match="overlap"):
            window.find(sequence, count)
    assert window.find(11, 3) == 1


def a_view() -> tuple[TopicState, TopicView[str]]:
    state = TopicState(1, "t", TopicOptions(), MemoryLog(DecodeCache(0)), Remembered())
    return state, TopicView(state)


def sent(producer: str, sequence: int, count: int) -> RecordBatch:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(b"x")
    return builder.seal(producer=producer, base_sequence=sequence)


def test_what_is_on_its_way_answers_for_a_resend_until_it_has_arrived() -> None:
    state, view = a_view()
    first = sent("one", 0, 10)
    assert view.propose(first, 0, "first") == 0
    assert view.propose(sent("one", 10, 5), 0, "second") == 10

    assert view.known("one", 0, 10) == "first"
    assert view.known("one", 10, 5) == "second"
    assert view.known("one", 15, 5) is None
    assert view.known("two", 0, 10) is None
    view.applied("one", 0, 10)
    assert view.known("one", 0, 10) is None
    state.append(first)
    assert view.known("one", 0, 10) == 0, "from now on the topic has it"
    assert view.known("one", 10, 5) == "second"


def test_sequences_that_go_back_are_looked_for_among_all_that_are_on_their_way() -> None:
    _, view = a_view()
    view.propose(sent("one", 100, 100), 0, "high")
    view.propose(sent("one", 0, 10), 0, "low")

    assert view.known("one", 50, 50) is None
    for first, count in ((150, 10), (99, 2), (199, 1), (5, 10)):
        with pytest.raises(InvalidRequest, match="overlap"):
            view.known("one", first, count)


def test_a_repeat_is_found_after_50_000_other_producers() -> None:
    producers = Producers()
    producers.add("importer", 7, 3, 100, 1)
    for number in range(50_000):
        producers.add(f"client-{number:025}", 0, 1, 200 + number, 1_000 + number)

    assert producers.find("importer", 7, 3) == 100
