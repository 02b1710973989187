from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder, RecordBatch, RowSource
from flintmq.engine.expiry import ALL, FOREVER, alive, end_of_life


def _rows(expiries: list[int], times: list[int] | None = None) -> BatchBuilder:
    rows = BatchBuilder()
    for n, expiry in enumerate(expiries):
        one = BatchBuilder()
        one.append_row(b"%d" % n, expiry=expiry)
        rows.extend_at(one, times[n] if times else 100)
    return rows


def test_without_expiry_and_ttl_everybody_lives() -> None:
    assert alive(_rows([0, 0]), 0, 2, None, 1 << 60) is ALL


def test_a_rows_own_expiry_counts_before_the_topics_ttl() -> None:
    rows = _rows([150, 0, 300])
    assert alive(rows, 0, 3, 100, 149) is ALL
    assert alive(rows, 0, 3, 100, 150) == [1, 2]
    assert alive(rows, 0, 3, 100, 200) == [2]
    assert alive(rows, 0, 3, 100, 300) == []
    assert alive(rows, 0, 3, None, 1000) == [1]
    assert [end_of_life(rows, row, 100) for row in range(3)] == [150, 200, 300]
    assert end_of_life(rows, 1, None) == FOREVER


@given(
    st.lists(st.tuples(st.one_of(st.just(0), st.integers(1, 60)), st.integers(0, 5)), min_size=1),
    st.one_of(st.none(), st.integers(1, 40)),
    st.integers(0, 100),
    st.data(),
)
def test_alive_is_asking_every_row(
    rows: list[tuple[int, int]], ttl_ms: int | None, now_ms: int, data: st.DataObject
) -> None:
    times, time = [], 0
    for _, later in rows:
        time += later
        times.append(time)
    builder = _rows([expiry for expiry, _ in rows], times)
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    expected = [
        row
        for row in range(start, stop)
        if (rows[row][0] or (FOREVER if ttl_ms is None else times[row] + ttl_ms)) > now_ms
    ]
    sealed: RecordBatch = builder.seal()
    source: RowSource
    for source in (builder, sealed):
        found = alive(source, start, stop, ttl_ms, now_ms)
        assert (list(range(start, stop)) if found is ALL else found) == expected


def test_a_duration_counts_from_the_append() -> None:
    builder = BatchBuilder()
    for expiry in (-30, 0, 120, -60):
        builder.append_row(b"x", expiry=expiry)
    rows = builder.seal()
    rows.stamp(7, 100)

    assert alive(rows, 0, 4, None, 119) is ALL
    assert alive(rows, 0, 4, None, 120) == [0, 1, 3]
    assert alive(rows, 0, 4, None, 130) == [1, 3]
    assert alive(rows, 0, 4, 50, 155) == [3]
    assert alive(rows, 3, 4, 50, 155) is ALL
