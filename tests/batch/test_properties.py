"""Any mix of rows, against a plain list of them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.batch import (
    RELATIVE,
    TIMES,
    UNSTAMPED,
    BatchBuilder,
    RecordBatch,
    absolute,
    concat,
    key_hash,
    size_of_rows,
    slice_batch,
    thin_batch,
)
from flintmq.errors import InvalidRequest
from tests.batch.samples import (
    EVERY_COLUMN,
    NOW,
    Row,
    built,
    every_column,
    meant,
    rows_of,
    times_of,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
text_or_bytes = text | st.binary(max_size=8)
times_ms = st.integers(NOW, NOW + 3)
moments = st.just(0) | st.integers(1, 2**62) | st.integers(-(2**60), -1)
"""When a row expires or is due: never, at a time, or so long after its append."""
values = st.binary(max_size=12) | st.binary(min_size=4, max_size=4)
any_row = st.builds(
    Row,
    value=values,
    key=st.none() | text_or_bytes,
    headers=st.dictionaries(text, text_or_bytes, max_size=3),
    priority=st.integers(0, 7),
    expiry=moments,
    deliver_at=moments,
    content_type=st.none() | st.sampled_from(["text/plain", "application/json", "ö"]),
)
plain_row = st.builds(Row, value=values)
text_row = st.builds(
    Row, value=values, key=text, headers=st.dictionaries(text, text), content_type=st.just("t")
)
rows = st.one_of(
    st.lists(any_row, min_size=1, max_size=12),
    st.lists(plain_row, min_size=1, max_size=30),
    st.lists(text_row, min_size=1, max_size=6),
    st.lists(st.sampled_from(EVERY_COLUMN), min_size=1, max_size=12),
)
compressions = st.sampled_from(["none", "lz4", "zstd"])


@given(rows, st.data())
def test_rows_cut_out_of_a_builder_are_as_if_they_had_been_put_together_alone(
    said: list[Row], data: st.DataObject
) -> None:
    builder = BatchBuilder(7)
    time = NOW
    for row in said:
        time += data.draw(st.sampled_from([0, 0, 1]))
        builder.extend_at(built([row]), time)
    start = data.draw(st.integers(0, len(said) - 1))
    stop = data.draw(st.integers(start + 1, len(said)))
    expected = BatchBuilder(7 + start)
    expected.extend(builder, start, stop)

    part = builder.cut(start, stop)

    assert part.encode() == expected.seal().encode()
    assert part.size(0, stop - start) == RecordBatch.decode(part.encode()).size(0, stop - start)


@dataclass(frozen=True)
class Model:
    """A batch, and what it must hold: the rows as they were said, and when each was appended."""

    said: list[Row]
    times: list[int]
    batch: RecordBatch

    @property
    def rows(self) -> list[Row]:
        return [meant(row, time) for row, time in zip(self.said, self.times, strict=True)]

    def check(self, batch: RecordBatch) -> None:
        assert rows_of(batch) == self.rows
        assert list(batch.values()) == [row.value for row in self.rows]
        assert times_of(batch) == self.times


@st.composite
def models(draw: st.DrawFn, base_offset: int | None = None) -> Model:
    items = draw(rows)
    uniform = draw(st.booleans())
    if uniform:
        times = [draw(times_ms)] * len(items)
    else:
        times = draw(st.lists(times_ms, min_size=len(items), max_size=len(items)))
    stamped_last = uniform and draw(st.booleans())
    batch = built(items, None if stamped_last else times).seal(
        compression=draw(compressions),
        producer=draw(st.none() | text),
        base_sequence=draw(st.integers(0, 2**64 - 1)),
    )
    batch.append_time = times[0]
    if base_offset is None:
        base_offset = draw(st.just(UNSTAMPED) | st.integers(0, 2**50))
    batch.base_offset = base_offset
    return Model(items, times, batch)


@given(models())
def test_any_mix_of_columns_comes_back_as_it_went_in(model: Model) -> None:
    model.check(model.batch)
    data = model.batch.encode()
    decoded = RecordBatch.decode(data)

    model.check(decoded)
    assert decoded.encode() == data
    assert decoded.producer == model.batch.producer
    assert decoded.base_sequence == model.batch.base_sequence
    assert decoded.base_offset == model.batch.base_offset
    for row, expected in enumerate(model.rows):
        expected_hash = 0 if expected.key is None else key_hash(expected.key)
        assert decoded.key_hash(row) == expected_hash


@pytest.mark.slow
@given(models(), st.data())
def test_a_range_of_values_is_that_range_of_the_list(model: Model, data: st.DataObject) -> None:
    batch = RecordBatch.decode(model.batch.encode())
    start, stop = draw_range(data, len(model.rows))

    expected = [row.value for row in model.rows[start:stop]]
    assert list(batch.values(start, stop)) == expected
    assert [batch.value(row) for row in range(start, stop)] == expected
    batch.values()
    assert list(batch.values(start, stop)) == expected


@given(rows, st.data())
def test_sizes_count_values_keys_and_headers(items: list[Row], data: st.DataObject) -> None:
    builder = built(items)
    start, stop = draw_range(data, len(items))

    expected = sum(map(size_of, items[start:stop]))
    assert builder.size(start, stop) == expected
    assert builder.seal().size(start, stop) == expected
    assert builder.byte_count == sum(map(size_of, items))


@given(models(), st.data())
def test_the_size_of_scattered_rows_is_the_sum_of_theirs(model: Model, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(range(len(model.rows))), max_size=20))
    batch = model.batch

    assert size_of_rows(batch, chosen) == sum(batch.size(row, row + 1) for row in chosen)


@given(models(), st.data())
def test_the_sizes_of_the_parts_of_a_batch_add_up(model: Model, data: st.DataObject) -> None:
    batch = model.batch
    start, stop = draw_range(data, len(model.rows))

    parts = batch.size(0, start) + batch.size(start, stop) + batch.size(stop, batch.row_count)
    assert parts == batch.size(0, batch.row_count)


@given(models(), st.data())
def test_a_slice_is_a_slice_of_the_list(model: Model, data: st.DataObject) -> None:
    start, stop = draw_range(data, len(model.rows))
    batch = model.batch

    part = RecordBatch.decode(slice_batch(batch, start, stop).encode())

    Model(model.said[start:stop], model.times[start:stop], batch).check(part)
    assert part.compression == batch.compression
    assert part.producer == batch.producer
    assert part.base_sequence == (batch.base_sequence + start) % 2**64
    if batch.base_offset == UNSTAMPED:
        assert part.base_offset == UNSTAMPED
    else:
        assert part.base_offset == batch.base_offset + start


@given(models(), st.booleans(), st.data())
def test_scattered_rows_keep_their_place_and_others_have_nothing_in_them(
    model: Model, is_sealed: bool, data: st.DataObject
) -> None:
    chosen = sorted(data.draw(st.sets(st.sampled_from(range(len(model.rows))), min_size=1)))
    first, batch = chosen[0], model.batch
    source = batch if is_sealed else built(model.said, model.times)
    source.base_offset = batch.base_offset

    part = RecordBatch.decode(thin_batch(source, chosen).encode())

    found, times = rows_of(part), times_of(part)
    assert [found[row - first] for row in chosen] == [model.rows[row] for row in chosen]
    assert [times[row - first] for row in chosen] == [model.times[row] for row in chosen]
    for row in set(range(len(found))).difference(row - first for row in chosen):
        assert part.compression or not part.size(row, row + 1)
        assert not found[row].value
        assert not found[row].headers
    if batch.base_offset != UNSTAMPED:
        assert part.base_offset == batch.base_offset + first


@given(st.lists(models(base_offset=UNSTAMPED), min_size=1, max_size=4), compressions)
def test_concat_is_the_lists_one_behind_the_other(parts: list[Model], compression: str) -> None:
    offset = 500
    for part in parts:
        part.batch.base_offset = offset
        offset += part.batch.row_count

    whole = RecordBatch.decode(concat([part.batch for part in parts], compression).encode())

    joined = [row for part in parts for row in part.said]
    Model(joined, [time for part in parts for time in part.times], whole).check(whole)
    assert whole.base_offset == 500
    assert whole.producer is None


@given(models(base_offset=40), st.data())
def test_a_batch_cut_in_two_and_joined_again_is_the_same(model: Model, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(model.rows)))
    parts = [slice_batch(model.batch, 0, cut)]
    if cut < len(model.rows):
        parts.append(slice_batch(model.batch, cut, len(model.rows)))

    whole = concat(parts)

    model.check(whole)
    assert whole.base_offset == 40


@given(rows, compressions, st.data())
def test_durations_stay_durations_until_there_is_an_append_time(
    items: list[Row], compression: str, data: st.DataObject
) -> None:
    start, stop = draw_range(data, len(items))
    sent = RecordBatch.decode(built(items).seal(compression=compression).encode())
    part = RecordBatch.decode(slice_batch(sent, start, stop).encode())
    both = RecordBatch.decode(concat([sent, part], compression).encode())

    assert rows_of(sent) == items
    assert rows_of(part) == items[start:stop]
    assert rows_of(both) == items + items[start:stop]
    for batch, said in ((sent, items), (part, items[start:stop])):
        batch.stamp(7, NOW)
        assert rows_of(batch) == [meant(row, NOW) for row in said]


@given(models())
def test_times_in_place_of_durations_mean_the_same(model: Model) -> None:
    batch = RecordBatch.decode(absolute(model.batch, model.batch.append_time).encode())

    assert not batch.columns & RELATIVE
    model.check(batch)
    assert batch.byte_length == model.batch.byte_length
    assert (batch.producer, batch.base_sequence) == (
        model.batch.producer,
        model.batch.base_sequence,
    )


@given(rows, st.integers(1, 2**40), st.integers(1, 2**40))
def test_the_bytes_of_a_producer_do_not_change_with_the_stamp(
    items: list[Row], first: int, second: int
) -> None:
    batch = built(items).seal(producer="me", base_sequence=3)
    batch.stamp(5, first)
    body, checksum = bytes(batch.body), batch.body_checksum
    batch.stamp(9, second)

    assert (bytes(batch.body), batch._checksum_of_body()) == (body, checksum)
    assert rows_of(batch) == [meant(row, second) for row in items]


@given(rows)
def test_rows_still_being_built_look_like_the_finished_batch(items: list[Row]) -> None:
    builder = built(items)
    batch = builder.seal()

    assert builder.row_count == batch.row_count == len(items)
    assert rows_of(builder) == rows_of(batch) == items
    assert list(builder.values()) == list(batch.values())
    assert times_of(builder) == times_of(batch)
    assert builder.is_plain == batch.is_plain
    for row in range(len(items)):
        assert builder.key_hash(row) == batch.key_hash(row)
        assert builder.size(row, row + 1) == batch.size(row, row + 1)


class Appended:
    """Adds rows to a builder in one of the ways there are, and to a list beside it."""

    def __init__(self) -> None:
        self.builder = BatchBuilder()
        self.rows: list[Row] = []
        self.times: list[int] = []

    def one_by_one(self, model: Model) -> None:
        for row in model.rows:
            self.builder.append(row.value)
            self.rows.append(Row(row.value))
            self.times.append(self.builder.append_time)

    def extend(self, model: Model) -> None:
        middle = len(model.rows) // 2
        self.builder.extend(model.batch, middle, len(model.rows))
        self.rows += model.rows[middle:]
        self.times += model.times[middle:]

    def extend_at(self, model: Model) -> None:
        self.builder.extend_at(built(model.said), NOW + 2)
        self.rows += [meant(row, NOW + 2) for row in model.said]
        self.times += [NOW + 2] * len(model.rows)


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([Appended.one_by_one, Appended.extend, Appended.extend_at]),
            models(),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_builder_takes_rows_in_any_order_of_ways(steps: list[tuple[object, Model]]) -> None:
    appended = Appended()
    for way, model in steps:
        assert callable(way)
        way(appended, model)

    builder = appended.builder
    for source in (builder, builder.seal(), RecordBatch.decode(builder.seal().encode())):
        assert rows_of(source) == appended.rows
        assert times_of(source) == appended.times
    assert builder.byte_count == sum(map(size_of, appended.rows))


@given(rows, times_ms)
def test_sealing_leaves_the_builder_as_it_was(items: list[Row], time: int) -> None:
    builder = BatchBuilder()
    builder.extend_at(built(items), time)
    first = builder.seal().encode()

    assert builder.seal().encode() == first
    builder.extend_at(built(items), time + 1)
    assert rows_of(builder.seal()) == [meant(row, at) for at in (time, time + 1) for row in items]
    assert times_of(builder.seal()) == [time] * len(items) + [time + 1] * len(items)


def test_times_take_room_only_where_they_differ() -> None:
    same = built([Row(b"a"), Row(b"b")], times=[NOW, NOW]).seal()
    other = built([Row(b"a"), Row(b"b")], times=[NOW, NOW + 1]).seal()

    assert not same.columns & TIMES
    assert other.columns & TIMES
    assert times_of(slice_batch(other, 1, 2)) == [NOW + 1]
    assert not slice_batch(other, 1, 2).columns & TIMES


def test_a_range_of_no_rows_adds_none() -> None:
    builder = BatchBuilder()
    batch = every_column()
    builder.extend(batch, 0, 0)
    builder.extend(batch, batch.row_count, batch.row_count)

    assert builder.row_count == 0
    assert builder.columns == 0


def test_a_row_that_is_refused_leaves_nothing_behind() -> None:
    builder = BatchBuilder()
    with pytest.raises(UnicodeEncodeError):
        builder.append_row(b"bad", key="\ud800", priority=7)
    with pytest.raises(UnicodeEncodeError):
        builder.append_row(b"bad", key="good", headers={"name": "\ud800"}, content_type="t")
    with pytest.raises(TypeError):
        builder.append(None)  # type: ignore[arg-type]
    builder.append(b"good")

    assert rows_of(builder) == rows_of(builder.seal()) == [Row(b"good")]
    assert builder.byte_count == 4
    assert builder.columns == 0


def test_headers_are_the_callers_only_until_they_are_appended() -> None:
    headers: dict[str, str | bytes] = {"a": "1"}
    builder = BatchBuilder()
    builder.append_row(b"x", headers=headers)
    headers["b"] = "2"
    builder.headers(0)["c"] = "3"

    assert builder.headers(0) == {"a": "1"}
    assert builder.seal().headers(0) == {"a": "1"}


def test_the_whole_of_a_batch_is_the_batch_itself() -> None:
    batch = every_column("lz4")

    assert slice_batch(batch, 0, batch.row_count) is batch


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (3, 2), (-1, 2), (0, 6)])
def test_a_slice_outside_the_batch_is_refused(start: int, stop: int) -> None:
    with pytest.raises(InvalidRequest, match="of a batch of 5 rows"):
        slice_batch(every_column(), start, stop)


def test_concat_refuses_a_gap_and_nothing() -> None:
    first, second = every_column(), every_column()
    second.stamp(first.base_offset + first.row_count + 1, NOW)

    with pytest.raises(InvalidRequest, match="offset 1006 does not follow on; expected 1005"):
        concat([first, second])
    with pytest.raises(InvalidRequest, match="at least one"):
        concat([])


def test_unstamped_batches_are_joined_to_an_unstamped_one() -> None:
    parts = [BatchBuilder.of([b"a", b"b"]).seal(), BatchBuilder.of([b"c"]).seal()]

    whole = concat(parts)

    assert whole.base_offset == UNSTAMPED
    assert list(whole.values()) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("count", [4_096, 4_097])
@pytest.mark.parametrize("width", [0, 3])
def test_many_values_of_one_width_come_back_however_they_are_taken_apart(
    count: int, width: int
) -> None:
    items = [index.to_bytes(3, "big")[:width] for index in range(count)]
    batch = RecordBatch.decode(BatchBuilder.of(list(items)).seal().encode())

    assert list(batch.values()) == items
    assert list(batch.values(5, 9)) == items[5:9]
    assert batch.value(count - 1) == items[-1]


def test_one_value_of_another_width_among_many_is_noticed() -> None:
    # The same total as if all had the same width: only the offsets tell.
    items = [b"aaaa", b"bbb", b"ccccc", b"dddd"]

    assert list(RecordBatch.decode(BatchBuilder.of(items).seal().encode()).values()) == items


def size_of(row: Row) -> int:
    key = row.key or b""
    parts = [row.value, key, *row.headers, *row.headers.values()]
    return sum(len(part.encode() if isinstance(part, str) else part) for part in parts)


def draw_range(data: st.DataObject, rows: int) -> tuple[int, int]:
    start = data.draw(st.integers(0, rows - 1))
    return start, data.draw(st.integers(start + 1, rows))
