"""The log in memory, beside a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder, DecodeCache, RecordBatch
from flintmq.engine.state.memory_log import CHUNK_BYTES, CHUNK_ROWS, JOIN_ROWS_MAX, MemoryLog


def _log() -> MemoryLog:
    return MemoryLog(DecodeCache(1 << 20))


def _rows(values: list[bytes]) -> BatchBuilder:
    return BatchBuilder.of(list(values))


def _value(log: MemoryLog, offset: int) -> bytes:
    source, row, stop = log.locate(offset)
    assert row < stop
    assert source.base_offset + row == offset
    return bytes(source.value(row))


def _chunks(log: MemoryLog) -> list[tuple[str, int]]:
    """What kind of chunks there are, and how many rows each has."""
    chunks, offset = [], log.first_offset
    while offset < log.next_offset:
        source, row, stop = log.locate(offset)
        chunks.append((type(source).__name__, stop))
        offset += stop - row
    return chunks


def test_offsets_follow_each_other() -> None:
    log = _log()
    assert log.append(_rows([b"a", b"b"]), 1) == 0
    assert log.append(_rows([b"c"]), 2) == 2
    assert [_value(log, n) for n in range(3)] == [b"a", b"b", b"c"]
    assert [log.time_of(n) for n in range(3)] == [1, 1, 2]


def test_times_never_go_back() -> None:
    log = _log()
    for now_ms in (5, 3, 9, 1):
        log.append(_rows([b"x"]), now_ms)
    assert [log.time_of(n) for n in range(4)] == [5, 5, 9, 9]


def test_small_publishes_join_one_chunk_until_it_is_full() -> None:
    log = _log()
    for n in range(CHUNK_ROWS + 5):
        log.append(_rows([b"%d" % n]), n)
    assert _chunks(log) == [("RecordBatch", CHUNK_ROWS), ("BatchBuilder", 5)]


def test_bytes_close_a_chunk_too() -> None:
    log = _log()
    for _ in range(100):
        log.append(_rows([b"x" * 10_000]), 1)
    rows = -(-CHUNK_BYTES // 10_000)
    assert [count for _, count in _chunks(log)] == [rows, rows, rows, 100 - 3 * rows]


def test_a_larger_publish_is_a_chunk_of_its_own() -> None:
    log = _log()
    log.append(_rows([b"x"]), 1)
    log.append(_rows([b"x"] * JOIN_ROWS_MAX), 1)
    log.append(_rows([b"x"]), 1)
    assert [count for _, count in _chunks(log)] == [1, JOIN_ROWS_MAX, 1]


def test_a_very_large_publish_is_split_so_that_dropping_frees_its_parts() -> None:
    log = _log()
    log.append(_rows([b"%d" % n for n in range(10_000)]), 7)
    assert max(count for _, count in _chunks(log)) <= CHUNK_ROWS
    assert [_value(log, n) for n in (0, 1023, 1024, 9999)] == [b"0", b"1023", b"1024", b"9999"]
    assert log.time_of(9999) == 7

    log = _log()
    log.append(_rows([b"x" * 100_000] * 50), 7)
    assert max(count for _, count in _chunks(log)) <= 3


def test_large_values_stay_the_objects_they_are() -> None:
    log = _log()
    value = b"x" * 1_000_000
    log.append(_rows([value]), 1)
    log.append(_rows([b"y"] * JOIN_ROWS_MAX), 1)
    source, row, _ = log.locate(0)
    assert source.value(row) is value


def test_a_finished_batch_is_kept_as_it_came() -> None:
    log = _log()
    log.append(_rows([b"before"]), 1)
    batch = _rows([b"a", b"b"]).seal(compression="lz4")
    assert isinstance(batch, RecordBatch)
    log.append(batch, 2)
    assert log.locate(1)[0] is batch
    assert _value(log, 2) == b"b"


def test_many_chunks_are_forgotten_as_they_are_dropped() -> None:
    log = _log()
    for n in range(5000):
        log.append(_rows([b"%d" % n] * JOIN_ROWS_MAX), n)
        log.drop_to(max(0, log.next_offset - 100))
    assert log.next_offset - log.first_offset == 100
    assert len(log._chunks) < 1100
    assert _value(log, log.first_offset) == b"4998"


def test_what_is_not_there_cannot_be_dropped() -> None:
    log = _log()
    log.append(_rows([b"x"]), 1)
    with pytest.raises(AssertionError):
        log.drop_to(2)


_publishes = st.lists(
    st.tuples(
        st.one_of(
            st.lists(st.binary(max_size=5), min_size=1, max_size=5),
            st.builds(
                lambda value, count: [value] * count,
                st.binary(max_size=3),
                st.sampled_from([63, 64, 70, 1500, 2500]),
            ),
        ),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(_publishes, st.data())
def test_the_log_is_a_list_with_a_moving_first_offset(
    publishes: list[tuple[list[bytes], int, bool]], data: st.DataObject
) -> None:
    log = _log()
    model: list[tuple[bytes, int]] = []
    now_ms = 100
    first = 0
    for values, later, sealed in publishes:
        now_ms += later
        rows = _rows(values)
        assert log.append(rows.seal() if sealed else rows, now_ms) == len(model)
        model += [(value, now_ms) for value in values]
        if data.draw(st.booleans()):
            to = data.draw(st.integers(0, len(model)))
            assert log.drop_to(to) == max(0, to - first)
            first = max(first, to)

        kept = model[first:]
        assert (log.first_offset, log.next_offset) == (first, len(model))
        assert log.byte_count == sum(len(value) for value, _ in kept)
        if kept:
            for offset in {first, len(model) - 1, data.draw(st.integers(first, len(model) - 1))}:
                assert _value(log, offset) == model[offset][0]
                assert log.time_of(offset) == model[offset][1]
            source, row, _ = log.locate_first()
            assert source.base_offset + row == first

        wanted = data.draw(st.integers(0, log.byte_count))
        freeing, freed = first, 0
        while freed < wanted:
            freed += len(model[freeing][0])
            freeing += 1
        assert log.offset_freeing(wanted, log.next_offset) == freeing

        at = data.draw(st.integers(99, now_ms + 1))
        expected = next((n for n in range(first, len(model)) if model[n][1] >= at), len(model))
        assert log.offset_at_time(at) == expected
