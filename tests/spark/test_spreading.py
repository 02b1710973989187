"""Rows are routed as the client routes messages, and joined and cut on their way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flintmq
from flintmq.batch import BatchBuilder
from flintmq.client.routing import Router
from flintmq.spark.gathering import RowGatherer
from flintmq.spark.spreading import Spreader
from flintmq.spark.write_columns import TaskRows

pa = pytest.importorskip("pyarrow")


def rows(
    keys: list[bytes | None] | None = None,
    *,
    values: list[bytes] | None = None,
    topics: list[str | None] | None = None,
    partitions: list[int | None] | None = None,
) -> TaskRows:
    count = len(keys or topics or partitions or values or [])
    columns = {"value": pa.array(values or [b"%d" % row for row in range(count)], pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    return TaskRows(
        pa.RecordBatch.from_arrays(list(columns.values()), list(columns)),
        None if topics is None else pa.array(topics, pa.string()),
        None if partitions is None else pa.array(partitions, pa.int64()),
    )


def spread(spreader: Spreader, given: TaskRows) -> dict[str, list[bytes]]:
    return {name: part.column("value").to_pylist() for name, part in spreader.spread(given)}


@given(
    st.lists(st.none() | st.binary(max_size=6), min_size=1, max_size=40),
    st.integers(1, 12),
)
@settings(deadline=None)
def test_rows_go_to_the_partitions_that_the_client_would_choose(
    keys: list[bytes | None], partitions: int
) -> None:
    builder = BatchBuilder()
    for row, key in enumerate(keys):
        builder.append_row(b"%d" % row, key=key)
    chosen = Router().spread("orders", builder, partitions, None)
    wanted = {f"orders/{number}": part.values() for number, part in chosen.items()}

    assert spread(Spreader("orders", lambda _: partitions), rows(keys)) == wanted


def test_rows_are_split_by_their_topic_and_keep_their_order() -> None:
    given_rows = rows(topics=["a", "b", "a", "c", "b"])

    assert spread(Spreader(None, lambda _: None), given_rows) == {
        "a": [b"0", b"2"],
        "b": [b"1", b"4"],
        "c": [b"3"],
    }


def test_the_option_wins_over_the_column() -> None:
    assert spread(Spreader("all", lambda _: None), rows(topics=["a", None])) == {
        "all": [b"0", b"1"]
    }


def test_a_named_partition_wins_over_the_key() -> None:
    given_rows = rows([b"a", b"a", None], partitions=[2, None, 1])

    found = spread(Spreader("orders", lambda _: 3), given_rows)

    assert found == {"orders/2": [b"0"], "orders/0": [b"1"], "orders/1": [b"2"]}


def test_rows_without_a_key_take_one_partition_after_the_other_batch_by_batch() -> None:
    spreader = Spreader("orders", lambda _: 2, turn=1)

    assert list(spread(spreader, rows(values=[b"a", b"b"]))) == ["orders/1"]
    assert list(spread(spreader, rows(values=[b"a", b"b"]))) == ["orders/0"]


@pytest.mark.parametrize(("partitions", "count"), [([3], 3), ([-1], 3), ([1], None)])
def test_a_partition_that_is_not_there_is_refused(partitions: list[int], count: int | None) -> None:
    given_rows = rows(values=[b""], partitions=list(partitions))
    with pytest.raises(flintmq.InvalidRequest, match=f"no partition {partitions[0]} in 'orders'"):
        spread(Spreader("orders", lambda _: count), given_rows)


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(flintmq.InvalidRequest, match="a row has no topic"):
        spread(Spreader(None, lambda _: None), rows(topics=["a", None]))


def gathered(gatherer: RowGatherer, topic: str, *batches: Any) -> list[tuple[str, int]]:
    return [
        (name, cut.num_rows)
        for batch in batches
        for name, cut in gatherer.add(topic, batch)
    ]  # fmt: skip


def column(*values: bytes) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])


def test_few_rows_wait_for_more() -> None:
    gatherer = RowGatherer(rows_max=5)

    assert gathered(gatherer, "a", column(b"1", b"2"), column(b"3")) == []
    assert gathered(gatherer, "b", column(b"x")) == []
    assert gathered(gatherer, "a", column(b"4", b"5")) == [("a", 5)]
    assert [(topic, cut.column("value").to_pylist()) for topic, cut in gatherer.rest()] == [
        ("b", [b"x"])
    ]
    assert list(gatherer.rest()) == []


def test_many_rows_are_cut_evenly() -> None:
    assert gathered(RowGatherer(rows_max=4), "a", column(*[b""] * 10)) == [
        ("a", 4),
        ("a", 4),
        ("a", 2),
    ]


def test_large_rows_are_cut_by_their_size() -> None:
    cuts = gathered(RowGatherer(bytes_max=1000), "a", column(*[bytes(300)] * 10))

    assert len(cuts) == 4
    assert sum(count for _, count in cuts) == 10


def test_large_rows_behind_many_small_ones_do_not_end_up_in_one_batch() -> None:
    gatherer = RowGatherer(rows_max=2_500, bytes_max=1_000)
    rows = pa.record_batch({"value": [b"x"] * 90 + [bytes(600)] * 10})

    cuts = [cut for _, cut in [*gatherer.add("orders", rows), *gatherer.rest()]]

    assert max(cut.nbytes for cut in cuts) <= 2_000
    assert pa.Table.from_batches(cuts).equals(pa.Table.from_batches([rows]))


def test_rows_with_and_without_hashes_of_keys_are_joined() -> None:
    with_hashes = column(b"1").append_column("key_hash", pa.array([7], pa.uint32()))
    gatherer = RowGatherer()
    assert gathered(gatherer, "a", with_hashes, column(b"2")) == []

    ((_, joined),) = gatherer.rest()

    assert joined.schema.names == ["value"]
    assert joined.column("value").to_pylist() == [b"1", b"2"]
